"""The cache is where it is said to be, lists what it holds, and deletes nothing else."""

from pathlib import Path

import pytest

from tlkit.models import cache


@pytest.fixture
def root(monkeypatch, tmp_path):
    monkeypatch.setenv("TLKIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fill(root, name, *sizes):
    (root / name).mkdir(parents=True)
    (root / name / cache.MARK).touch()
    for number, size in enumerate(sizes):
        (root / name / f"file{number}").write_bytes(b"x" * size)


def test_it_is_where_the_environment_says(root, monkeypatch):
    assert cache.cache_dir() == root
    monkeypatch.delenv("TLKIT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache.cache_dir().name == "tlkit"


def test_nothing_is_listed_where_nothing_is(root):
    assert cache.entries() == []
    assert cache.clear() == []
    assert not root.exists()


def test_entries_have_names_and_sizes(root):
    fill(root, "models/b", 10, 20)
    fill(root, "models/a", 5)
    found = [(entry.name, entry.bytes) for entry in cache.entries()]
    assert found == [("models/a", 5), ("models/b", 30)]


def test_clearing_one_entry_leaves_the_rest(root):
    fill(root, "models/a", 5)
    fill(root, "models/b", 5)
    assert [entry.name for entry in cache.clear("models/a")] == ["models/a"]
    assert [entry.name for entry in cache.entries()] == ["models/b"]
    assert cache.clear("models/none") == []


def test_clearing_everything_leaves_a_users_own_files(root):
    fill(root, "models/a", 5)
    (root / "mine" / "notes").mkdir(parents=True)
    (root / "mine" / "notes" / "text").write_text("mine")
    cache.clear()
    assert cache.entries() == []
    assert (root / "mine" / "notes" / "text").read_text() == "mine"


def test_a_link_is_deleted_and_not_what_it_points_to(root, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("kept")
    (outside / cache.MARK).touch()
    (root / "models").mkdir(parents=True)
    (root / "models" / "link").symlink_to(outside)
    cache.clear()
    assert cache.entries() == []
    assert (outside / "file").read_text() == "kept"


def test_what_fails_half_way_is_not_kept(root):
    def fail(half):
        Path(half, "file").write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        cache.keep(root / "models" / "x", fail)
    assert cache.entries() == []
