"""How much more two workers do than one: the same sweep, on one-thread workers of this machine.

    python benchmarks/spread.py

resid_pre by layer and position. Workers are up, with the model loaded, before the time is taken:
what a run pays for that once is given apart. Local is this process with one thread.
"""

import argparse
import os
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
from timing import machine, say

import tlkit as tk
from tlkit.prompts.samples import pairs


def prompts_of(model, count):
    """The first pairs of the samples."""
    rows = pairs()[:count]
    fields = ("clean", "corrupted", "answer", "wrong_answer")
    return tk.Prompts.from_pairs(model, *([row[name] for row in rows] for name in fields))


def timed(model, prompts, executor):
    """Seconds until the first share came back, from then to the last, and jobs after the first."""
    told = []
    sweep = tk.patching.sweep(model, prompts, "resid_pre")
    started = time.perf_counter()
    tk.run(
        model, prompts, sweep, tk.LogitDiff(), executor=executor,
        progress=lambda done, total: told.append((time.perf_counter(), done)),
    )  # fmt: skip
    ended = time.perf_counter()
    (first, before), (last, after) = told[0], told[-1]
    return {
        "seconds": ended - started, "until_first": first - started, "working": last - first,
        "jobs": after, "jobs_per_second": (after - before) / max(last - first, 1e-9),
    }  # fmt: skip


def main() -> None:
    """One row for each number of workers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--pairs", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    asked = parser.parse_args()
    model = tk.HookedTransformer.from_pretrained(asked.model, device="cpu")
    prompts = prompts_of(model, asked.pairs)
    ray.init(
        num_cpus=max(asked.workers), include_dashboard=False, logging_level="ERROR",
        log_to_driver=False,
    )  # fmt: skip
    rows = {count: [] for count in asked.workers}
    for _ in range(asked.repeats):
        for count in asked.workers:
            rows[count].append(timed(model, prompts, tk.Ray(workers=count, cpus=1)))
            sys.stderr.write(f"{count}: {rows[count][-1]['jobs_per_second']:.1f} jobs/s\n")
    median = {count: sorted(r["jobs_per_second"] for r in found)[len(found) // 2]
              for count, found in rows.items()}  # fmt: skip
    least = min(asked.workers)
    say({
        "machine": machine(), "model": asked.model, "pairs": len(prompts), "ray": ray.__version__,
        "runs": rows, "jobs_per_second": median,
        "times": {count: value / median[least] for count, value in median.items()},
    })  # fmt: skip
    ray.shutdown()


if __name__ == "__main__":
    main()
