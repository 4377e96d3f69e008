"""Holding a run to its slow twin on a random share of its cells."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tlkit.engine.work import Work


def audited(work: Work, values: np.ndarray, share: float, seed: int) -> dict[str, Any]:
    """Run a random share of the exact jobs by the reference engine: how many, and how far off."""
    jobs = [job for job in work.jobs() if job.cell not in work.estimated]
    count = min(len(jobs), max(1, round(share * len(jobs))))
    chosen = np.random.default_rng(seed).choice(len(jobs), count, replace=False) if jobs else []
    some = [jobs[i] for i in sorted(chosen) if jobs[i].cell < len(work.worked)]
    worst = 0.0

    def compare(indices: Sequence[int], found: np.ndarray) -> None:
        nonlocal worst
        for index, value in zip(indices, found.T, strict=True):
            own = values[:, some[index].cell, some[index].example]
            same = (own == value) | (np.isnan(own) & np.isnan(value))
            gap = np.where(same, 0.0, np.abs(own - value))
            gap = np.where(np.isnan(gap), np.inf, gap)  # a number of one engine's alone
            worst = max(worst, float(gap.max()))

    work.backend("reference", None)[0].run(some, compare, None)
    return {"audit_jobs": len(some), "audit_difference": worst}
