"""What the shared options refuse before any model work."""

import pytest

from tlkit.cli.options import check_device, check_out, only_one
from tlkit.errors import SpecError


@pytest.mark.parametrize("name", [None, "cpu", "mps", "cuda", "cuda:1"])
def test_devices_are_kept(name):
    assert check_device(name) == name


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "cpu ", ""])
def test_other_words_are_no_devices(name):
    with pytest.raises(SpecError, match=f"--device {name} is not a device"):
        check_device(name)


def test_an_ending_that_the_command_cannot_write_is_refused(tmp_path):
    with pytest.raises(SpecError, match=r"must end in \.zarr or \.csv"):
        check_out(tmp_path / "x.pkl", (".zarr", ".csv"))
    with pytest.raises(SpecError, match=r"must end in \.html"):
        check_out(tmp_path / "report", (".html",))


def test_nothing_is_overwritten_unasked(tmp_path):
    page, store = tmp_path / "x.html", tmp_path / "x.zarr"
    assert check_out(page, (".html",)) == page
    assert check_out(store, (".zarr",)) == store
    page.write_text("kept")
    store.mkdir()
    with pytest.raises(SpecError, match="exists already: give another name, or --overwrite"):
        check_out(page, (".html",))
    with pytest.raises(SpecError, match="another name, or --resume or --overwrite"):
        check_out(store, (".zarr",))
    assert check_out(page, (".html",), overwrite=True) == page
    assert page.read_text() == "kept"


def test_a_missing_or_closed_folder_is_told(tmp_path):
    with pytest.raises(SpecError, match=r"the folder .*nowhere does not exist"):
        check_out(tmp_path / "nowhere" / "x.html", (".html",))
    (tmp_path / "file").write_text("")
    with pytest.raises(SpecError, match=r"the folder .*file does not exist"):
        check_out(tmp_path / "file" / "x.html", (".html",))
    (tmp_path / "a.html").mkdir()
    with pytest.raises(SpecError, match="is a folder: give the name of a file"):
        check_out(tmp_path / "a.html", (".html",), overwrite=True)


def test_only_a_store_can_be_resumed(tmp_path):
    store = tmp_path / "x.zarr"
    with pytest.raises(SpecError, match="there is no store at"):
        check_out(store, (".zarr",), resume=True)
    with pytest.raises(SpecError, match=r"--resume continues a \.zarr store"):
        check_out(tmp_path / "x.html", (".zarr", ".html"), resume=True)
    store.mkdir()
    assert check_out(store, (".zarr",), resume=True) == store


def test_options_that_contradict_each_other():
    only_one(resume=True, overwrite=False)
    with pytest.raises(SpecError, match="--resume and --overwrite contradict each other"):
        only_one(resume=True, overwrite=True)
