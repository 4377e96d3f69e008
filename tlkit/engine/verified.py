"""Attribution patching that is held to exact runs: of what it finds largest, and of a sample.

Gradients rank all cells; the largest are run exactly, and so is a random share of the others,
which shows what the ranking may have missed (Kramár et al. 2024, arXiv:2403.00745, give such a
bound; here the sample itself is told).
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tlkit.engine.gradient import GradientBackend
from tlkit.engine.values import Backend, Finished, Job, Progress
from tlkit.errors import SpecError

LARGEST = 20
LEAST, SHARE, SAMPLE = 3 * LARGEST, 0.04, 0.25


@dataclass(frozen=True)
class Verify:
    """How much is run exactly.

    Attributes:
        top: Cells with the largest estimates; one in 25, and at least 60, if None.
        remainder: Cells drawn from the others; a quarter of ``top`` if None.
        seed: Draws them.

    Raises:
        SpecError: A number is negative, or none is left to be run.
    """

    top: int | None = None
    remainder: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if (self.top is not None and self.top < 1) or (self.remainder or 0) < 0:
            raise SpecError(
                f"engine='verified' runs at least the top cell: top={self.top}, "
                f"remainder={self.remainder} cannot be."
            )

    def __str__(self) -> str:
        return json.dumps(asdict(self))

    def counts(self, cells: int) -> tuple[int, int]:
        """How many top and random cells, of so many that change something."""
        top = max(LEAST, -(-cells // round(1 / SHARE))) if self.top is None else self.top
        top = min(top, cells)
        remainder = -(-top // round(1 / SAMPLE)) if self.remainder is None else self.remainder
        return top, min(remainder, cells - top)


def share_run(engine: str, cells: int) -> float:
    """What share of the cells that change something an engine runs exactly, 0 to 1."""
    if engine == "gradient" or cells == 0:
        return 0.0
    return sum(Verify().counts(cells)) / cells if engine == "verified" else 1.0


class VerifiedBackend:
    """Estimates every job, and runs those of the chosen cells exactly.

    Args:
        gradient: What estimates.
        exact: What runs exactly.
        jobs: All jobs, also those that an earlier run has finished: they all are ranked.
        present: Per cell, how many examples have it, free ones too.
        verify: How many.
    """

    name = "verified"

    def __init__(
        self, gradient: GradientBackend, exact: Backend, jobs: Sequence[Job],
        present: Sequence[int], verify: Verify,
    ) -> None:  # fmt: skip
        self.gradient, self.exact, self.jobs, self.verify = gradient, exact, jobs, verify
        self.present = present
        self.top: list[int] = []
        self.sample: list[int] = []

    @property
    def estimates(self) -> dict[tuple[int, int], np.ndarray]:
        """Per (cell, example), the estimated value of each metric."""
        return self.gradient.estimates

    def baseline(self, run: str) -> np.ndarray:
        """Values of an unchanged run: ``[metric, example]``."""
        return self.exact.baseline(run)

    def run(self, jobs: Sequence[Job], finished: Finished, progress: Progress | None) -> None:
        """Rank by estimates, then run the chosen cells."""
        self.gradient.run(self.jobs, finished, None)
        self._choose()
        chosen = {*self.top, *self.sample}
        where = [i for i, job in enumerate(jobs) if job.cell in chosen]

        def kept(indices: Sequence[int], values: np.ndarray) -> None:
            finished([where[i] for i in indices], values)

        self.exact.run([jobs[i] for i in where], kept, progress)

    def _choose(self) -> None:
        """The cells of the largest mean estimates of the first metric, and some of the others."""
        base = self.baseline(self.gradient.sequences.base)
        changes: dict[int, float] = {}
        for (cell, example), values in self.estimates.items():
            change = float(values[0] - base[0, example]) / self.present[cell]
            changes[cell] = changes.get(cell, 0.0) + change
        cells = sorted(changes, key=lambda cell: (-abs(changes[cell]), cell))
        top, remainder = self.verify.counts(len(cells))
        self.top, others = cells[:top], sorted(cells[top:])
        drawn = np.random.default_rng(self.verify.seed).permutation(len(others))[:remainder]
        self.sample = [others[i] for i in sorted(drawn)]

    def findings(self, values: np.ndarray, base: np.ndarray) -> dict[str, Any]:
        """What the exact cells tell about the estimates, from values ``[metric, cell, example]``.

        ``rank_agreement``: Spearman's correlation of estimated and exact mean effects, in
        magnitude, over all exact cells; ``missed_largest``: the largest exact effect in the
        sample; ``missed_share``: the share of the sample whose effect is larger than the smallest
        of the top cells; ``missed_top_share``: than the 20th largest of all exact cells.
        """
        effects = np.abs(_mean(values[0] - base[0]))
        guesses = np.where(np.isnan(values[0]), np.nan, base[0])  # free ones change nothing
        for (cell, example), value in self.estimates.items():
            guesses[cell, example] = value[0]
        guessed = np.abs(_mean(guesses - base[0]))
        exact = [*self.top, *self.sample]
        found: dict[str, Any] = {"exact_top": len(self.top), "exact_sample": len(self.sample)}
        agreement = spearman(guessed[exact], effects[exact])
        if agreement is not None:
            found["rank_agreement"] = agreement
        if self.sample:
            sample = effects[self.sample]
            twentieth = np.sort(effects[exact])[-min(LARGEST, len(exact))]
            found["missed_largest"] = float(sample.max())
            found["missed_share"] = float((sample > effects[self.top].min()).mean())
            found["missed_top_share"] = float((sample > twentieth).mean())
        return found


def _mean(changes: np.ndarray) -> np.ndarray:
    """Mean over the examples that have the cell, ``[cell]``."""
    there = ~np.isnan(changes)
    return np.where(there, changes, 0.0).sum(1) / np.maximum(there.sum(1), 1)


def spearman(left: np.ndarray, right: np.ndarray) -> float | None:
    """Rank correlation, -1 to 1; None where all of one side is equal."""
    if len(left) < 3 or np.ptp(left) == 0 or np.ptp(right) == 0:
        return None
    return float(np.corrcoef(_ranks(left), _ranks(right))[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 0; equal values share the mean of theirs."""
    _, group, size = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(size) - (size + 1) / 2)[group]
