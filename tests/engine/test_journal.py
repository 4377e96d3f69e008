"""Runs that stop half way: what was finished is kept and used again."""

import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import xarray as xr

import tlkit.engine.packed_values
from tlkit.engine.journal import Journal
from tlkit.engine.packed import Packed
from tlkit.engine.run import run
from tlkit.errors import SpecError
from tlkit.results.files import open as open_store
from tlkit.spec.interventions import Patch
from tlkit.spec.metrics import LogitDiff
from tlkit.spec.sites import Site
from tlkit.spec.sweeps import Sweep


@pytest.fixture(scope="module")
def model(tiny_bridge):
    return tiny_bridge("llama3")


@pytest.fixture
def small_groups(monkeypatch):
    """Groups of few tokens, so that a small sweep has several."""
    monkeypatch.setattr(tlkit.engine.packed_values, "GROUP_ROWS", 20)
    monkeypatch.setattr(tlkit.engine.packed_values, "CHUNK", 20)


def sweep():
    return Sweep(Patch(Site("resid_pre")), layer=range(3), pos=range(14))


@pytest.fixture
def counted(monkeypatch):
    """How many lanes have been run."""
    lanes = []
    plain = Packed.__init__

    def init(self, parts, base, sources, several, **options):
        lanes.extend(several)
        plain(self, parts, base, sources, several, **options)

    monkeypatch.setattr(Packed, "__init__", init)
    return lanes


def stop_after(groups):
    def progress(done, total):
        progress.calls += 1
        if progress.calls == groups:
            raise KeyboardInterrupt

    progress.calls = 0
    return progress


def test_interrupted_run_goes_on(model, ragged, tmp_path, small_groups, counted):
    prompts, store = ragged(model), tmp_path / "map.zarr"
    whole = run(model, prompts, sweep(), LogitDiff())
    jobs = len(counted)
    with pytest.raises(KeyboardInterrupt):
        run(model, prompts, sweep(), LogitDiff(), store=store, progress=stop_after(3))
    before = len(counted) - jobs
    assert 0 < before < jobs
    part = open_store(store)
    assert not part.attrs["complete"]
    known = part["value"].notnull()
    assert 0 < int(known.sum()) < int(whole["value"].notnull().sum())
    np.testing.assert_array_equal(part["value"].where(known), whole["value"].where(known))
    found = run(model, prompts, sweep(), LogitDiff(), store=store)
    assert len(counted) == 2 * jobs  # no finished job was run twice
    xr.testing.assert_equal(found.drop_attrs(), whole.drop_attrs())
    xr.testing.assert_equal(open_store(store).drop_attrs(), whole.drop_attrs())
    assert not store.with_name("map.zarr.journal").exists()


def test_whole_run_is_not_run_again(model, ragged, tmp_path, counted):
    store = tmp_path / "map.zarr"
    first = run(model, ragged(model), sweep(), LogitDiff(), store=store)
    jobs = len(counted)
    again = run(model, ragged(model), sweep(), LogitDiff(), store=store)
    assert len(counted) == jobs
    xr.testing.assert_equal(first.drop_attrs(), again.drop_attrs())


def test_another_runs_store_is_refused(model, ragged, tmp_path, small_groups):
    store = tmp_path / "map.zarr"
    prompts = ragged(model)
    with pytest.raises(KeyboardInterrupt):
        run(model, prompts, sweep(), LogitDiff(), store=store, progress=stop_after(2))
    other = Sweep(Patch(Site("attn_out")), layer=range(3), pos=range(14))
    with pytest.raises(SpecError, match="another run"):
        run(model, prompts, other, LogitDiff(), store=store)
    with pytest.raises(SpecError, match="another run"):
        run(model, prompts[[0]], sweep(), LogitDiff(), store=store)


def filled(path):
    journal = Journal(path, "key", 2)
    journal.add([(0, 0), (0, 1)], np.array([[1.0, 2.0], [3.0, np.nan]]))
    journal.add([(1, 0)], np.array([[5.0], [6.0]]))
    return journal


def test_journal_reads_what_it_wrote(tmp_path):
    filled(tmp_path / "j")
    again = Journal(tmp_path / "j", "key", 2)
    assert list(again.finished) == [(0, 0), (0, 1), (1, 0)]
    np.testing.assert_array_equal(again.finished[0, 1], [2.0, np.nan])
    np.testing.assert_array_equal(again.finished[1, 0], [5.0, 6.0])


@pytest.mark.parametrize("cut", [1, 7, 20])
def test_record_cut_short_is_dropped_and_written_again(tmp_path, cut):
    filled(tmp_path / "j")
    data = (tmp_path / "j").read_bytes()
    (tmp_path / "j").write_bytes(data[:-cut])
    again = Journal(tmp_path / "j", "key", 2)
    assert list(again.finished) == [(0, 0), (0, 1)]
    again.add([(1, 0)], np.array([[5.0], [6.0]]))
    assert (tmp_path / "j").read_bytes() == data


def test_flipped_byte_is_noticed(tmp_path):
    filled(tmp_path / "j")
    data = bytearray((tmp_path / "j").read_bytes())
    data[-2] ^= 1
    (tmp_path / "j").write_bytes(bytes(data))
    assert list(Journal(tmp_path / "j", "key", 2).finished) == [(0, 0), (0, 1)]


def test_strange_file_is_refused(tmp_path):
    (tmp_path / "j").write_text("notes\n")
    with pytest.raises(SpecError, match=r"(no|not a) journal"):
        Journal(tmp_path / "j", "key", 2)


KILLED = """
import os, sys
import tlkit.engine.packed_values as values
values.GROUP_ROWS = values.CHUNK = 20
import tlkit as tk
from tlkit.checks.samples import sample_pairs
from tlkit.models.bridge import Parts

model = tk.HookedTransformer.from_pretrained("tiny:llama3")
prompts = sample_pairs(Parts(model), seed=0)
sweep = tk.Sweep(tk.Patch(tk.Site("resid_pre")), layer=range(3), pos=range(14))
calls = []

def progress(done, total):
    calls.append(done)
    if len(calls) == 3 and sys.argv[2] == "die":
        os.kill(os.getpid(), 9)

tk.run(model, prompts, sweep, tk.LogitDiff(), store=sys.argv[1], progress=progress)
print(len(calls))
"""


def test_killed_process_goes_on(model, ragged, tmp_path):
    script, store = tmp_path / "sweep.py", tmp_path / "map.zarr"
    script.write_text(textwrap.dedent(KILLED))

    def start(how):
        command = [sys.executable, str(script), str(store), how]
        path = os.pathsep.join(filter(None, sys.path))
        environment = {**os.environ, "PYTHONPATH": path}
        return subprocess.run(command, capture_output=True, text=True, env=environment)

    killed = start("die")
    assert killed.returncode == -signal.SIGKILL
    assert not store.exists()
    kept = len(Journal(store.with_name("map.zarr.journal"), _key(store), 1).finished)
    assert kept > 0
    rerun = start("live")
    assert rerun.returncode == 0, rerun.stderr
    found = open_store(store)
    whole = run(model, ragged(model), sweep(), LogitDiff())
    np.testing.assert_allclose(found["value"].values, whole["value"].values, atol=1e-5)


def _key(store):
    import json

    line = store.with_name("map.zarr.journal").read_bytes().partition(b"\n")[0]
    return json.loads(line)["key"]
