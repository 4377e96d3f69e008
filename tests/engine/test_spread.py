"""A run that is spread over workers: the local run's dataset, whoever is lost on the way.

Faults to plant: share out by jobs instead of streams; keep a lost worker's share; ask a restarted
worker before it has loaded; forget the examples that no job is left for; take the journal's jobs
again; give the values of one share to another's jobs.
"""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pytest
import torch
import xarray as xr

import tlkit as tk
import tlkit.engine.packed_values
from tlkit.engine.journal import Journal
from tlkit.engine.run import run
from tlkit.engine.shares import Queue, Share
from tlkit.engine.worker import Here, load_again
from tlkit.errors import EngineError, SpecError
from tlkit.models.tiny import tiny, tiny_tokenizer


@pytest.fixture(scope="module")
def model(tiny_bridge):
    return tiny_bridge("llama3")


@pytest.fixture
def small_groups(monkeypatch):
    """Streams of few tokens, so that a small sweep has several."""
    monkeypatch.setattr(tlkit.engine.packed_values, "GROUP_ROWS", 20)
    monkeypatch.setattr(tlkit.engine.packed_values, "CHUNK", 20)


@pytest.fixture
def journaled(monkeypatch):
    """Every job that a journal has been given."""
    jobs, plain = [], Journal.add

    def add(self, where, values):
        jobs.extend(where)
        plain(self, where, values)

    monkeypatch.setattr(Journal, "add", add)
    return jobs


def sweep(site="resid_pre", **axes):
    return tk.Sweep(tk.Patch(tk.Site(site)), **(axes or {"layer": range(3), "pos": range(14)}))


def same(found, local, exactly=True):
    found, local = found.drop_attrs(), local.drop_attrs()
    if exactly:
        xr.testing.assert_equal(found, local)
    else:
        xr.testing.assert_allclose(found, local, rtol=0, atol=1e-5)


@pytest.mark.parametrize("engine", ["packed", "reference"])
@pytest.mark.parametrize("budget", [None, "40kB"])
def test_shares_give_the_local_run_bit_for_bit(model, ragged, small_groups, engine, budget):
    prompts, several = ragged(model), [tk.LogitDiff(), tk.KL()]
    options = {"engine": engine, "budget": budget}
    local = run(model, prompts, sweep(), several, **options)
    told = []
    found = run(
        model, prompts, sweep(), several, executor=Here(), progress=lambda *of: told.append(of),
        **options,
    )  # fmt: skip
    same(found, local)
    assert found.attrs["executor"] == "here"
    assert found.attrs["engine"] == local.attrs["engine"]
    assert len(told) > 5
    assert told[-1][0] == told[-1][1]


def test_means_and_given_interventions_are_shared_out_too(model, ragged, small_groups):
    prompts = ragged(model)
    given = (tk.Ablate(tk.Site("mlp_out", layer=0), "mean"),)
    swept = tk.Sweep(
        tk.Ablate(tk.Site("z"), "resample"), layer=range(3), head=range(4), given=given
    )
    same(run(model, prompts, swept, tk.LogitDiff(), executor=Here()),
         run(model, prompts, swept, tk.LogitDiff()))  # fmt: skip


def test_a_local_run_is_gone_on_with_by_workers(
    model, ragged, small_groups, tmp_path, journaled
):  # fmt: skip
    prompts, store = ragged(model), tmp_path / "map.zarr"

    def stop(done, total):
        if len(journaled) > 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(model, prompts, sweep(), tk.LogitDiff(), store=store, progress=stop)
    with pytest.raises(KeyboardInterrupt):
        run(model, prompts, sweep(), tk.LogitDiff(), store=store, progress=stop, executor=Here())
    part = tk.open(store)
    assert not part.attrs["complete"]
    found = run(model, prompts, sweep(), tk.LogitDiff(), store=store, executor=Here())
    same(found, run(model, prompts, sweep(), tk.LogitDiff()), exactly=False)
    assert len(journaled) == len(set(journaled))


def test_baselines_come_where_all_jobs_are_done(model, ragged, tmp_path):
    prompts, store = ragged(model), tmp_path / "map.zarr"
    first = run(model, prompts, sweep(pos=[0], layer=[0]), tk.LogitDiff(), executor=Here())
    assert first["clean"].notnull().all()
    free = sweep(layer=[0], pos=[1])  # no example differs there
    same(run(model, prompts, free, tk.LogitDiff(), store=store, executor=Here()),
         run(model, prompts, free, tk.LogitDiff()))  # fmt: skip


def test_workers_stay_with_examples_and_lost_shares_go_first():
    a, b = range(0, 2), range(2, 4)
    shares = [Share(one, ((n, one.start),)) for one in (a, b) for n in range(3)]
    queue = Queue(shares)
    assert queue.take("one") == shares[0]
    assert queue.take("two") == shares[3]
    assert queue.take("one") == shares[1]
    queue.give_back("one", shares[1])
    assert queue.take("three") == shares[1]
    assert [queue.take("two"), queue.take("two")] == shares[4:]
    assert queue.take("two") == shares[2]  # nothing of its own is left
    assert len(queue) == 0


def test_objects_in_memory_hooks_and_estimates_are_refused(model, ragged):
    given = tk.HookedTransformer.from_pretrained(tiny("llama3"), tokenizer=tiny_tokenizer())
    with pytest.raises(SpecError, match=r"cannot have an object in memory.*load="):
        load_again(given)
    prompts = ragged(model)
    with pytest.raises(SpecError, match="not engine='gradient'"):
        run(model, prompts, sweep(), tk.LogitDiff(), engine="gradient", executor=Here())
    with pytest.raises(SpecError, match=r"give 'ray' or tk\.Ray"):
        run(model, prompts, sweep(), tk.LogitDiff(), executor="slurm")
    handle = model.blocks[1].hook_resid_pre  # somebody's own hook, which workers do not have
    handle.add_hook(lambda value, hook: value)
    try:
        with pytest.raises(SpecError, match="which workers do not have"):
            run(model, prompts, sweep(), tk.LogitDiff(), executor=Here())
    finally:
        handle.remove_hooks()


def test_models_are_loaded_again_as_they_were(tmp_path):
    tiny("llama3").save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    model = tk.HookedTransformer.from_pretrained(str(tmp_path), dtype="bfloat16", device="cpu")
    again = load_again(model)()
    assert next(again.parameters()).dtype == torch.bfloat16
    assert tk.HookedTransformer.from_pretrained("tiny:qwen3").cfg.n_layers == 3


def test_other_weights_at_a_worker_are_noticed(model, ragged):
    class Other(Here):
        def load_of(self, model):
            return lambda: tk.HookedTransformer.from_pretrained("tiny:qwen2")

    with pytest.raises(SpecError, match="other weights"):
        run(model, ragged(model), sweep(), tk.LogitDiff(), executor=Other())


def test_ray_that_is_not_installed_is_told(monkeypatch, model, ragged):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SpecError, match=r"pip install 'tlkit\[ray\]'"):
        run(model, ragged(model), sweep(), tk.LogitDiff(), executor="ray")


@pytest.fixture(scope="module")
def cluster():
    """Ray on this machine for two workers; its address."""
    ray = pytest.importorskip("ray")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # nothing leaves the machine
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()


def loading(folder):
    """A function that loads the model and notes who begins which share."""
    name = str(folder)

    def load():
        import json
        import os
        import time

        import tlkit as tk
        from tlkit.engine.worker import Worker

        plain = Worker.carry_out

        def carry_out(self, share):
            with open(os.path.join(name, "begun.jsonl"), "a") as file:
                file.write(json.dumps([os.getpid(), share.jobs]) + "\n")
            time.sleep(0.2)  # so that a kill finds it at work
            return plain(self, share)

        Worker.carry_out = carry_out
        return tk.HookedTransformer.from_pretrained("tiny:llama3", device="cpu")

    return load


def begun(folder):
    lines = (folder / "begun.jsonl").read_text().splitlines()
    return [(pid, [tuple(job) for job in jobs]) for pid, jobs in map(json.loads, lines)]


@pytest.mark.slow
def test_two_workers_give_the_local_run(cluster, model, ragged, small_groups, tmp_path):
    prompts = ragged(model)
    local = run(model, prompts, sweep(), tk.LogitDiff())
    found = run(model, prompts, sweep(), tk.LogitDiff(), executor=tk.Ray(workers=2, cpus=1))
    same(found, local, exactly=torch.get_num_threads() == 1)  # as a worker has
    assert found.attrs["executor"] == "ray"
    with pytest.raises(SpecError, match="No machine of the Ray cluster has 99 CPUs"):
        run(model, prompts, sweep(), tk.LogitDiff(), executor=tk.Ray(workers=1, cpus=99))
    failing = tk.Ray(workers=1, cpus=1, load=lambda: tk.HookedTransformer.from_pretrained("./no"))
    with pytest.raises(SpecError, match=r"There is no folder \./no"):
        run(model, prompts, sweep(), tk.LogitDiff(), executor=failing)


@pytest.fixture
def killing(tmp_path, journaled):
    """A progress function that kills a busy worker, once, and what had been finished by then."""

    def kill(done, total):
        if not kill.victims and len(journaled) > 3:
            kill.finished.update(journaled)
            kill.victims.append(begun(tmp_path)[-1][0])
            os.kill(kill.victims[0], signal.SIGKILL)

    kill.victims, kill.finished = [], set()
    return kill


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "restarts"), [(2, 0), (1, 1)])
def test_a_killed_worker_loses_nothing(
    cluster, model, ragged, small_groups, tmp_path, journaled, killing, workers, restarts
):  # fmt: skip
    executor = tk.Ray(workers=workers, cpus=1, load=loading(tmp_path), restarts=restarts)
    prompts, store = ragged(model), tmp_path / "map.zarr"
    found = run(
        model, prompts, sweep(), tk.LogitDiff(), store=store, executor=executor, progress=killing
    )
    same(found, run(model, prompts, sweep(), tk.LogitDiff()), exactly=False)
    assert len(journaled) == len(set(journaled))  # none twice
    # Whatever was finished when the worker was killed was begun once only; what it had, twice.
    told = begun(tmp_path)
    all_begun = [job for _, jobs in told for job in jobs]
    assert all(all_begun.count(job) == 1 for job in killing.finished)
    assert set(journaled) == set(all_begun)
    lost = [jobs for pid, jobs in told if pid == killing.victims[0]][-1]
    assert all(all_begun.count(job) == 2 for job in lost)
    assert len({pid for pid, _ in told}) == 2


@pytest.mark.slow
def test_a_run_that_loses_all_workers_says_so_and_goes_on(
    cluster, model, ragged, small_groups, tmp_path, journaled, killing
):
    prompts, store = ragged(model), tmp_path / "map.zarr"
    executor = tk.Ray(workers=1, cpus=1, load=loading(tmp_path), restarts=0)
    with pytest.raises(EngineError, match="All workers were lost"):
        run(model, prompts, sweep(), tk.LogitDiff(), store=store, executor=executor,
            progress=killing)  # fmt: skip
    found = run(model, prompts, sweep(), tk.LogitDiff(), store=store)
    same(found, run(model, prompts, sweep(), tk.LogitDiff()), exactly=False)
    assert len(journaled) == len(set(journaled))


DRIVER = """
import os, sys
from pathlib import Path
import tlkit.engine.packed_values as values
values.GROUP_ROWS = values.CHUNK = 20
import tlkit as tk
from tlkit.checks.samples import sample_pairs
from tlkit.models.bridge import Parts

{loading}
store, how, address = sys.argv[1:]
model = tk.HookedTransformer.from_pretrained("tiny:llama3", device="cpu")
prompts = sample_pairs(Parts(model), seed=0)
sweep = tk.Sweep(tk.Patch(tk.Site("resid_pre")), layer=range(3), pos=range(14))
calls = []

def progress(done, total):
    calls.append(done)
    if len(calls) == 3 and how == "die":
        os.kill(os.getpid(), 9)

executor = tk.Ray(workers=2, cpus=1, address=address, load=loading(Path(store).parent))
tk.run(
    model, prompts, sweep, tk.LogitDiff(), store=store, progress=progress, executor=executor
)
"""


@pytest.mark.slow
def test_a_killed_driver_goes_on(cluster, model, ragged, tmp_path):
    import inspect

    script, store = tmp_path / "driver.py", tmp_path / "map.zarr"
    script.write_text(textwrap.dedent(DRIVER).replace("{loading}", inspect.getsource(loading)))

    def start(how):
        command = [sys.executable, str(script), str(store), how, cluster]
        path = os.pathsep.join(filter(None, sys.path))
        environment = {**os.environ, "PYTHONPATH": path}
        return subprocess.run(command, capture_output=True, text=True, env=environment)

    killed = start("die")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not store.exists()
    journal = store.with_name("map.zarr.journal")
    header = json.loads(journal.read_bytes().partition(b"\n")[0])
    kept = set(Journal(journal, header["key"], header["metrics"]).finished)
    assert kept
    before = len(begun(tmp_path))
    rerun = start("live")
    assert rerun.returncode == 0, rerun.stderr
    again = {job for _, jobs in begun(tmp_path)[before:] for job in jobs}
    assert not again & kept
    found, local = tk.open(store), run(model, ragged(model), sweep(), tk.LogitDiff())
    np.testing.assert_allclose(found["value"].values, local["value"].values, atol=1e-5)
    assert not journal.exists()
