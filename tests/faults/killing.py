"""Kills work that keeps something on disk, goes on with it, and says what was lost or repeated.

Run as a script: ``killing.py sweep|study|probes|save FOLDER KILLS SEED``. One process imports
everything; each attempt is a fork of it, killed by SIGKILL after a random number of file
operations (opening, renaming, deleting, making and removing folders) or of microseconds. What is
printed is one JSON object.
"""

import contextlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is loaded: its threads would not outlive a fork
EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")


def die_at(event, folder):
    """Kill this process before its ``event``-th file operation in a folder."""
    seen = 0

    def hook(name, arguments):
        nonlocal seen
        if name in EVENTS and str(folder) in str(arguments[0]):
            seen += 1
            if seen == event:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def attempt(work, folder, *, event=None, seconds=None):
    """Run something in a fork; whether it was killed. It exits with 3 if it raised."""
    child = os.fork()
    if child == 0:
        code = 0
        try:
            if event is not None:
                die_at(event, folder)
            work()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            code = 3
        os._exit(code)
    if seconds is not None:
        time.sleep(seconds)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    if os.WEXITSTATUS(status):
        raise SystemExit(f"an attempt failed with {os.WEXITSTATUS(status)}")
    return False


def sweep_parts():
    """A sweep of many small groups: (run it into a store, the whole result)."""
    import tlkit.engine.packed_values as values

    values.GROUP_ROWS = values.CHUNK = 20
    import tlkit as tk
    from tlkit.checks.samples import sample_pairs
    from tlkit.models.bridge import Parts

    model = tk.HookedTransformer.from_pretrained("tiny:llama3", device="cpu")
    prompts = sample_pairs(Parts(model), seed=0)
    sweep = tk.Sweep(tk.Patch(tk.Site("resid_pre")), layer=range(3), pos=range(14))
    return lambda store: tk.run(model, prompts, sweep, tk.LogitDiff(), store=store)


def kept_jobs(store):
    """What a journal holds, read without going on with it."""
    from tlkit.engine.journal import Journal

    path = store.with_name(store.name + ".journal")
    if not path.exists() or (
        not path.read_bytes().endswith(b"\n") and b"\n" not in path.read_bytes()
    ):
        return {}
    try:
        header = json.loads(path.read_bytes().partition(b"\n")[0])
    except ValueError:
        return {}
    reader = Journal.__new__(Journal)
    reader.path, reader.key, reader.metrics = path, header["key"], header["metrics"]
    reader.finished, reader._header = {}, b""
    reader._rewrite = lambda data: None
    reader._read(path.read_bytes())
    return dict(reader.finished)


def sweeps(folder, kills, dice):
    """Sweeps that are killed until they are whole, one after another."""
    run = sweep_parts()
    whole = run(None)
    began = time.perf_counter()
    run(folder / "timed.zarr")
    usual = time.perf_counter() - began
    count = {"kills": 0, "stores": 0, "lost": 0, "repeated": 0, "different": 0, "jobs": 0}
    from tlkit.engine.journal import Journal

    plain = Journal.add

    def add(self, jobs, values):
        with (folder / "log").open("a") as log:
            log.write(json.dumps([list(map(int, job)) for job in jobs]) + "\n")
        plain(self, jobs, values)

    Journal.add = add
    while count["kills"] < kills:
        store = folder / f"sweep{count['stores']}.zarr"
        killed, kept = True, {}
        while killed:
            (folder / "log").write_text("")
            by_time = dice.random() < 0.5
            how = {"seconds": dice.uniform(0, usual)} if by_time else {"event": dice.randint(1, 60)}
            killed = attempt(lambda store=store: run(store), store.name, **how)
            count["kills"] += killed
            lines = (folder / "log").read_text().splitlines()
            done = [tuple(job) for line in lines if line.endswith("]") for job in json.loads(line)]
            count["repeated"] += sum(job in kept for job in done)
            count["jobs"] += len(done)
            if killed and not store.exists():
                now = kept_jobs(store)
                count["lost"] += sum(not same(now.get(job), value) for job, value in kept.items())
                kept = now
        count["stores"] += 1
        count["different"] += not alike(whole, store)
    return count


def same(one, other):
    return one is not None and np.array_equal(one, other, equal_nan=True)


def alike(whole, store):
    import tlkit as tk

    found = tk.open(store)
    left = store.with_name(store.name + ".journal").exists()
    return not left and np.allclose(whole["value"], found["value"], atol=1e-5, equal_nan=True)


def studies(folder, kills, dice):
    """Pathways studies of three sets that are killed until they are whole."""
    os.environ["TLKIT_CACHE"] = str(folder / "cache")
    import tlkit as tk
    from tlkit.studies.pathways import one_set

    model = tk.HookedTransformer.from_pretrained("tiny:llama", device="cpu")
    rows = [
        {"question": f"What is the drink of {name}{i}?", "answer": drink, "subject": f"{name}{i}"}
        for i in range(4) for name, drink in (("Mary", "tea"), ("Tom", "milk"), ("Rome", "water"))
    ]  # fmt: skip
    sets = {f"set{i}": tk.QA.from_rows(rows[4 * i : 4 * i + 4], f"set{i}") for i in range(3)}
    quick = {"parts": ("intervention",), "max_new_tokens": 4, "chat": False, "answers": "given"}

    def run(store):
        return tk.pathways.run(model, sets, store=store, **quick)

    whole = run(None)
    began = time.perf_counter()
    run(folder / "timed.zarr")
    usual = time.perf_counter() - began
    plain = one_set.STEPS["intervention"]

    def logged(task):
        with (folder / "log").open("a") as log:
            log.write(task.part.answers + "\n")
        plain(task)

    one_set.STEPS["intervention"] = logged
    count = {"kills": 0, "stores": 0, "lost": 0, "repeated": 0, "different": 0, "parts": 0}
    while count["kills"] < kills:
        store = folder / f"study{count['stores']}.zarr"
        killed, kept = True, {}
        while killed:
            (folder / "log").write_text("")
            by_time = dice.random() < 0.5
            how = (
                {"seconds": dice.uniform(0, usual)} if by_time else {"event": dice.randint(1, 600)}
            )
            killed = attempt(lambda store=store: run(store), store.name, **how)
            count["kills"] += killed
            begun = (folder / "log").read_text().split()
            count["repeated"] += sum(answers in kept for answers in begun)
            count["parts"] += len(begun)
            if killed:
                now = finished_sets(store)
                count["lost"] += len(kept - now) if kept else 0
                kept = now
        count["stores"] += 1
        found = tk.open(store)
        names = list(whole.data_vars)
        count["different"] += not whole[names].drop_attrs().equals(found[names].drop_attrs())
    return count


def finished_sets(store):
    """The answers of the sets that a store has."""
    import tlkit as tk
    from tlkit.errors import SpecError

    try:
        notes = json.loads(tk.open(store).attrs["notes"])
    except SpecError as error:
        if "no results" in str(error):
            return set()
        raise
    return {note["answers"] for note in notes.values() if note["done"]}


def events_of(work, name):
    """How many file operations of its store some work makes."""
    reader, writer = os.pipe()

    def counted():
        seen = []
        sys.addaudithook(
            lambda event, given: (
                seen.append(event) if event in EVENTS and name in str(given[0]) else None
            )
        )
        work()
        os.write(writer, str(len(seen)).encode())

    attempt(counted, name)
    return int(os.read(reader, 20))


def saves(folder, kills, dice):
    """One store that is replaced by another, killed at random file operations and the last ones."""
    import tlkit as tk

    run = sweep_parts()
    first = run(None)
    second = first.assign_attrs(second=True)
    store, count = folder / "kept.zarr", {"kills": 0, "lost": 0, "old": 0, "new": 0, "litter": 0}

    def replace():
        tk.save(second, store, overwrite=True)

    tk.save(first, store)
    total = events_of(replace, store.name)
    last = min(10, kills // 2)
    moments = [*range(total - last + 1, total + 1), *dice.sample(range(1, total), kills - last)]
    for event in moments:
        if not attempt(replace, store.name, event=event):
            continue
        count["kills"] += 1
        try:
            found = tk.open(store)
            count["new" if "second" in found.attrs else "old"] += 1
            count["lost"] += not first.drop_attrs().equals(found.drop_attrs())
        except Exception as error:
            print(error, file=sys.stderr)
            count["lost"] += 1
        if "second" in tk.open(store).attrs:
            tk.save(first, store, overwrite=True)
    tk.save(first, store, overwrite=True)
    count |= {"moments": total}
    count["litter"] = len(list(folder.iterdir())) - 1
    return count


def main():
    kind, folder, kills, seed = sys.argv[1:]
    work = {"sweep": sweeps, "study": studies, "save": saves}[kind]
    began = time.perf_counter()
    count = work(Path(folder), int(kills), random.Random(int(seed)))
    print(json.dumps({**count, "seconds": round(time.perf_counter() - began, 1)}))


if __name__ == "__main__":
    main()
