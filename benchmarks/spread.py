"""How much more two workers do than one: the same sweep, on one-thread workers of this machine.

    python benchmarks/spread.py

resid_pre by layer and position on random pairs of 18 tokens that first differ at token 11. Each
number of workers runs some pairs, and four times as many: the rate is that of the difference, so
that starting workers and loading the model, which a run pays once, is not in it.
"""

import argparse
import os
import statistics
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
from timing import machine, say

import tlkit as tk
from tlkit.checks.samples import sample_pairs
from tlkit.models.bridge import Parts


def timed(model, count, executor):
    """Jobs and seconds of a run on so many pairs, workers started and model loaded in it."""
    prompts = sample_pairs(Parts(model), 0, [(18, 11)] * count)
    sweep = tk.patching.sweep(model, prompts, "resid_pre")
    told = []
    started = time.perf_counter()
    tk.run(
        model, prompts, sweep, tk.LogitDiff(), executor=executor,
        progress=lambda done, total: told.append(done),
    )  # fmt: skip
    return {"jobs": told[-1], "seconds": time.perf_counter() - started, "shares": len(told)}


def main() -> None:
    """One row for each number of workers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--pairs", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    asked = parser.parse_args()
    model = tk.HookedTransformer.from_pretrained(asked.model, device="cpu")
    ray.init(
        num_cpus=max(asked.workers), include_dashboard=False, logging_level="ERROR",
        log_to_driver=False,
    )  # fmt: skip
    rows = {count: [] for count in asked.workers}
    for _ in range(asked.repeats):
        for count in asked.workers:
            few, many = (
                timed(model, pairs, tk.Ray(workers=count, cpus=1))
                for pairs in (asked.pairs, 4 * asked.pairs)
            )
            jobs, seconds = many["jobs"] - few["jobs"], many["seconds"] - few["seconds"]
            rows[count].append({"few": few, "many": many, "jobs_per_second": jobs / seconds})
            sys.stderr.write(f"{count}: {jobs / seconds:.1f} jobs/s\n")
    median = {
        count: statistics.median(row["jobs_per_second"] for row in found)
        for count, found in rows.items()
    }
    least = min(asked.workers)
    say({
        "machine": machine(), "model": asked.model, "pairs": asked.pairs, "ray": ray.__version__,
        "runs": rows, "jobs_per_second": median,
        "times": {count: value / median[least] for count, value in median.items()},
    })  # fmt: skip
    ray.shutdown()


if __name__ == "__main__":
    main()
