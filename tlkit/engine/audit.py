"""Holding a run to its slow twin on a random share of its cells."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tlkit.engine.values import Job
from tlkit.engine.work import Work


def audited(work: Work, values: np.ndarray, share: float, seed: int) -> dict[str, Any]:
    """Run a random share of the exact cells by the reference engine: how many, and how far off.

    Cells that were taken to change nothing are among them, and are run in full.
    """
    there = [
        (cell, example)
        for cell, row in enumerate(work.worked)
        for example, worked in enumerate(row)
        if worked.status != "missing" and cell not in work.estimated
    ]
    if not there:
        return {"audit_jobs": 0, "audit_difference": float("nan")}
    count = min(len(there), max(1, round(share * len(there))))
    chosen = sorted(np.random.default_rng(seed).choice(len(there), count, replace=False))
    compiler = work.compiler(trusting=False)
    some = [
        Job(cell, example, compiler.work_out(work.conditions[cell], example))
        for cell, example in (there[i] for i in chosen)
    ]
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
