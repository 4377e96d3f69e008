"""How much more two workers do than one: the same sweep, on one-thread workers of this machine.

    python benchmarks/spread.py

resid_pre by layer and position on random pairs of 18 tokens that first differ at token 11. The rate
is that of the time in which all workers were at work: starting them and loading the model, which a
run pays once, is in "seconds" alone.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
from timing import machine, say

import tlkit as tk
from tlkit.checks.samples import sample_pairs
from tlkit.models.bridge import Parts


def loading(source, log):
    """Loads the model in a worker that notes when it began and ended each share."""

    def load():
        import json
        import os
        import time

        import tlkit as tk
        from tlkit.engine.worker import Worker

        plain = Worker.carry_out

        def carry_out(self, share):
            began = time.time()
            outcome = plain(self, share)
            with open(log, "a") as file:
                file.write(json.dumps([os.getpid(), began, time.time(), len(share.jobs)]) + "\n")
            return outcome

        Worker.carry_out = carry_out
        return tk.HookedTransformer.from_pretrained(source, device="cpu")

    return load


def timed(model, asked, workers, folder):
    """A run, and its rate while all of its workers were at work."""
    log = Path(folder) / f"{time.time()}.jsonl"
    prompts = sample_pairs(Parts(model), 0, [(18, 11)] * asked.pairs)
    sweep = tk.patching.sweep(model, prompts, "resid_pre")
    executor = tk.Ray(workers=workers, cpus=1, load=loading(asked.model, str(log)))
    started = time.perf_counter()
    tk.run(model, prompts, sweep, tk.LogitDiff(), executor=executor)
    seconds = time.perf_counter() - started
    shares = [json.loads(line) for line in log.read_text().splitlines()]
    own = [[one for one in shares if one[0] == pid] for pid in {one[0] for one in shares}]
    begin = max(min(one[1] for one in some) for some in own)
    end = min(max(one[2] for one in some) for some in own)
    jobs = sum(
        count * max(0.0, min(last, end) - max(first, begin)) / (last - first)
        for _, first, last, count in shares
    )
    return {
        "seconds": seconds, "shares": len(shares), "jobs": sum(one[3] for one in shares),
        "at_work": len(own), "together_seconds": end - begin,
        "jobs_per_second": jobs / (end - begin) if end > begin else None,
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
    ray.init(
        num_cpus=max(asked.workers), include_dashboard=False, logging_level="ERROR",
        log_to_driver=False,
    )  # fmt: skip
    folder = tempfile.mkdtemp()
    rows = {count: [] for count in asked.workers}
    for _ in range(asked.repeats):
        for count in asked.workers:
            rows[count].append(timed(model, asked, count, folder))
            sys.stderr.write(f"{count}: {rows[count][-1]}\n")
    median = {
        count: statistics.median(row["jobs_per_second"] for row in found if row["at_work"] == count)
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
