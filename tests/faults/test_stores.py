"""Promises about what is on disk: told in one sentence, repaired if it can be, never misread."""

import errno
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap

import numpy as np
import pytest

import tlkit as tk
from tlkit.engine import journal as journals
from tlkit.engine.journal import Journal
from tlkit.errors import EngineError, SpecError, TlkitWarning
from tlkit.results import files
from tlkit.results.export import to_csv
from tlkit.results.locking import held


def one_sentence(error):
    text = str(error.value)
    assert "\n" not in text
    assert "Traceback" not in text
    assert len(text) < 400
    return text


# Promise: a full disk stops a run with one sentence; what was finished is there, and goes on.


def test_a_disk_that_fills_up_keeps_what_was_finished(swept, tmp_path, monkeypatch):
    store, calls, plain = tmp_path / "map.zarr", [], os.fsync

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) == 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        plain(descriptor)

    monkeypatch.setattr(journals.os, "fsync", full)
    with pytest.raises(
        EngineError, match=r"disk is full.*What was finished before is kept"
    ) as told:
        swept.run(store)
    one_sentence(told)
    monkeypatch.setattr(journals.os, "fsync", plain)
    before = len(swept.counted)
    swept.same(swept.run(store))
    # The group whose record did not fit was computed, but not kept: it alone is run again.
    assert swept.jobs < before + len(swept.counted) <= swept.jobs + 20


def test_a_disk_that_is_full_at_the_end_costs_no_cell(swept, tmp_path, monkeypatch):
    store = tmp_path / "map.zarr"

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(files.xr.Dataset, "to_zarr", full)
        with pytest.raises(EngineError, match="the disk is full"):
            swept.run(store)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["map.zarr.journal"]
    swept.same(swept.run(store))
    assert swept.counted == []


def test_a_kill_after_the_save_leaves_no_journal_for_good(swept, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "remove", lambda self: None)
        swept.run(tmp_path / "map.zarr")
    assert (tmp_path / "map.zarr.journal").exists()
    swept.same(swept.run(tmp_path / "map.zarr"))
    assert [path.name for path in tmp_path.iterdir()] == ["map.zarr"]


def test_a_limit_on_the_size_of_files_is_told(swept, tmp_path):
    """The kernel's own refusal, not a stand-in for it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (600, before[1]))
    try:
        with pytest.raises(EngineError, match=r"larger than is allowed"):
            swept.run(tmp_path / "map.zarr")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    swept.same(swept.run(tmp_path / "map.zarr"))


def test_a_page_and_a_table_tell_of_a_full_disk(swept, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(EngineError, match=r"page\.html cannot be written: the disk is full"):
        tk.report(["text"], tmp_path / "page.html")
    monkeypatch.setattr("pandas.DataFrame.to_csv", full)
    with pytest.raises(EngineError, match=r"x\.csv cannot be written: the disk is full"):
        to_csv(swept.whole, tmp_path / "x.csv", ["value"])
    assert list(tmp_path.iterdir()) == []


# Promise: a folder that may not be written to is refused before the model runs.


@pytest.mark.skipif(os.name != "posix", reason="users and their rights are POSIX's")
def test_a_folder_that_is_read_only_is_refused():
    code = """
        import os, sys
        import numpy as np, xarray as xr
        from pathlib import Path
        from tlkit.engine.saved import checked_store
        from tlkit.errors import TlkitError
        from tlkit.results.files import save
        if os.geteuid() == 0:
            os.setgid(65534); os.setuid(65534)
        store = Path(sys.argv[1]) / "x.zarr"
        ds = xr.Dataset({"a": ("x", np.zeros(1))})
        for attempt in (checked_store, lambda path: save(ds, path)):
            try:
                attempt(store)
            except TlkitError as error:
                print(error)
    """
    # Not below pytest's own folder, which other users may not even enter.
    closed = tempfile.mkdtemp()
    os.chmod(closed, 0o555)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), closed],
        capture_output=True, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    os.rmdir(closed)
    first, second = done.stdout.splitlines()
    assert "cannot be written to" in first
    assert "cannot be written: you may not write there" in second


# Promise: a store cut short or changed is noticed; only what is bad is run again.


def damage(path, dice):
    """Cut a file short, or flip one of its bytes."""
    data = bytearray(path.read_bytes())
    if dice.random() < 0.3:
        data = data[: dice.randrange(len(data))]
    else:
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    path.write_bytes(bytes(data))


def test_of_a_damaged_store_only_what_is_bad_is_run_again(swept, tmp_path):
    store = tmp_path / "map.zarr"
    swept.run(store)
    chunks = sorted((store / "value" / "c").rglob("*"))
    chunk = [path for path in chunks if path.is_file()][1]
    chunk.write_bytes(chunk.read_bytes()[:-3] + b"abc")
    with pytest.raises(SpecError, match=r"map\.zarr is damaged") as told:
        tk.open(store)
    one_sentence(told)
    with pytest.warns(TlkitWarning, match="84 of its 126 values are sound and used"):
        found = swept.run(store)
    assert 0 < len(swept.counted) < swept.jobs  # one layer of three
    swept.same(found)
    swept.same(tk.open(store))


def test_a_missing_chunk_is_no_zero(swept, tmp_path):
    store = tmp_path / "map.zarr"
    swept.run(store)
    next(path for path in (store / "value" / "c").rglob("*") if path.is_file()).unlink()
    with pytest.warns(TlkitWarning, match="was damaged"):
        swept.same(swept.run(store))


def test_what_follows_from_the_cells_is_worked_out_anew_without_running_them(swept, tmp_path):
    store = tmp_path / "map.zarr"
    swept.run(store)
    shutil.rmtree(store / "effect" / "c")
    with pytest.warns(TlkitWarning, match="126 of its 126 values are sound"):
        swept.same(swept.run(store))
    assert swept.counted == []


def test_of_a_damaged_journal_only_the_bad_record_is_run_again(swept, tmp_path, stop_after):
    store = tmp_path / "map.zarr"
    with pytest.raises(KeyboardInterrupt):
        swept.run(store, progress=stop_after(5))
    shutil.rmtree(store)
    path = tmp_path / "map.zarr.journal"
    data = bytearray(path.read_bytes())
    data[data.index(b"TLKJ") + 20] ^= 4
    path.write_bytes(bytes(data))
    with pytest.warns(TlkitWarning, match="was damaged: .* sound results in it are used"):
        found = swept.run(store)
    assert len(swept.counted) < swept.jobs - 5
    swept.same(found)


def test_a_journal_that_was_only_begun_is_begun_anew(tmp_path):
    Journal(tmp_path / "j", "key", 1)
    whole = (tmp_path / "j").read_bytes()
    for length in (0, 1, 20, len(whole) - 1):
        (tmp_path / "j").write_bytes(whole[:length])
        assert Journal(tmp_path / "j", "key", 1).finished == {}
        assert (tmp_path / "j").read_bytes() == whole


def anywhere(swept, tmp_path, times, seed):
    """Damage a store somewhere; how each of them ended."""
    dice, ends = random.Random(seed), {"as it was": 0, "repaired": 0, "refused": 0}
    store, kept = tmp_path / "map.zarr", tmp_path / "kept.zarr"
    swept.run(kept)
    every = sorted(path for path in kept.rglob("*") if path.is_file())
    for _ in range(times):
        shutil.rmtree(store, ignore_errors=True)
        shutil.copytree(kept, store)
        damage(store / dice.choice(every).relative_to(kept), dice)
        with pytest.MonkeyPatch.context() as patch:
            told = []
            patch.setattr("tlkit.engine.saved.warn", told.append)
            try:
                found = swept.run(store)
            except SpecError as error:
                assert "damaged" in str(error) or "another run" in str(error), error
                ends["refused"] += 1
                continue
        swept.same(found)
        ends["repaired" if told else "as it was"] += 1
    print(ends)
    return ends


@pytest.mark.filterwarnings("ignore")
def test_damage_anywhere_is_repaired_or_refused(swept, tmp_path):
    assert sum(anywhere(swept, tmp_path, 12, 5).values()) == 12


@pytest.mark.campaign
@pytest.mark.filterwarnings("ignore")
def test_damage_at_200_places_is_repaired_or_refused(swept, tmp_path):
    assert anywhere(swept, tmp_path, 200, 6)["repaired"] > 40


@pytest.mark.filterwarnings("ignore")
def test_kept_activations_of_probes_are_checked_and_read_again(tiny_bridge, tmp_path):
    from tlkit.studies.layer_probes import activations

    model = tiny_bridge("llama3")
    prompts = tk.Prompts.from_texts(model, [f"The cat {i} sat in Rome" for i in range(40)])
    how = (tmp_path / "a.zarr", model, prompts, ["resid_post"], "last", 1)
    first = activations.Activations(*how)
    first.fill()
    whole = first.layer("resid_post", 1)
    read, plain = [], activations.Activations._read
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            activations.Activations, "_read",
            lambda self, some: read.append(len(some)) or plain(self, some),
        )  # fmt: skip
        activations.Activations(*how).fill()
        assert read == []
        chunk = sorted(p for p in (tmp_path / "a.zarr/resid_post/c/1").rglob("*") if p.is_file())[1]
        chunk.unlink()
        again = activations.Activations(*how)
        with pytest.warns(TlkitWarning, match="1 batches of prompts"):
            again.fill()
    assert read == [16]
    np.testing.assert_allclose(again.layer("resid_post", 1), whole, atol=1e-6)


# Promise: two processes cannot work on one store, and a killed one holds nothing.


def _hold(path, ready):
    with held(path):
        ready.set()
        signal.pause()


def test_a_second_process_on_a_store_is_refused_until_the_first_is_gone(swept, tmp_path):
    store, context = tmp_path / "map.zarr", multiprocessing.get_context("fork")
    ready = context.Event()
    other = context.Process(target=_hold, args=(store, ready))
    other.start()
    assert ready.wait(60)
    try:
        with pytest.raises(SpecError, match=r"map\.zarr is in use by another run") as told:
            swept.run(store)
        one_sentence(told)
        with pytest.raises(SpecError, match="in use by another run"):
            tk.save(swept.whole, store)
    finally:
        os.kill(other.pid, signal.SIGKILL)
        other.join()
    swept.same(swept.run(store))
    assert [path.name for path in tmp_path.iterdir()] == ["map.zarr"]


def test_a_lock_is_taken_again_by_its_own_thread_and_leaves_nothing(tmp_path):
    with held(tmp_path / "x"), held(tmp_path / "x"):
        assert (tmp_path / ".x.lock").exists()
    assert list(tmp_path.iterdir()) == []


# Promise: Ctrl+C keeps what was finished, also when it is pressed again while that is being kept.


def test_ctrl_c_twice_keeps_what_was_finished(swept, tmp_path, monkeypatch, stop_after):
    store = tmp_path / "map.zarr"

    def again(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(files.xr.Dataset, "to_zarr", again)
        with pytest.raises(KeyboardInterrupt):
            swept.run(store, progress=stop_after(4))
    assert [path.name for path in tmp_path.iterdir()] == ["map.zarr.journal"]
    before = len(swept.counted)
    swept.same(swept.run(store))
    assert before + len(swept.counted) == swept.jobs
