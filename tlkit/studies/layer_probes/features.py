"""Features of one layer's prompts, fold by fold: what the classifiers see."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tlkit.errors import SpecError
from tlkit.studies.layer_probes.activations import FEATURES
from tlkit.studies.layer_probes.factors import basis_of, check_rank, decompose
from tlkit.studies.layer_probes.rows import Fold

Split = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Making:
    """How features are made of activations.

    Attributes:
        features: ``"cp"``: coordinates on CP factors; ``"last"``: the last token's activation;
            ``"mean"``: the mean over the prompt's tokens.
        inductive: CP factors come from training prompts alone and test prompts are projected on
            them; else all prompts are decomposed together, without their labels.
        rank: Number of CP components.
        last_tokens: Tokens of a prompt that CP sees.
        compress: Directions of the activations that CP sees.
        iterations: Most rounds of alternating least squares.
        seeds: Starts of the decomposition (and seeds of the forest); scores are averaged.
    """

    features: str = "cp"
    inductive: bool = True
    rank: int = 20
    last_tokens: int = 64
    compress: int = 32
    iterations: int = 50
    seeds: tuple[int, ...] = (0, 1, 2)

    def check(self, prompts: int | None = None) -> None:
        """Refuse what cannot be, before any model work.

        Args:
            prompts: Training prompts of the smallest fold.

        Raises:
            SpecError: A number, or the name of the features, cannot be used.
        """
        if self.features not in FEATURES:
            raise SpecError(
                f"There are no features {self.features!r}; there are {', '.join(FEATURES)}."
            )
        for name in ("rank", "last_tokens", "compress", "iterations"):
            if getattr(self, name) < 1:
                raise SpecError(f"{name} is {getattr(self, name)}; it must be at least 1.")
        if not self.seeds:
            raise SpecError("seeds is empty; give at least one number.")
        if len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise SpecError(f"seeds are different whole numbers from 0 on, not {self.seeds}.")
        if self.features == "cp" and prompts is not None:
            check_rank(self.rank, self.last_tokens, self.compress, prompts)

    def of(self, x: np.ndarray) -> np.ndarray:
        """Features ``[prompt, feature]`` of all prompts together, from the first seed.

        Args:
            x: One layer's ``[prompt, place, d_model]``.

        Raises:
            SpecError: The rank is more than a tensor of these sizes has.
        """
        if self.features != "cp":
            return x[:, 0].astype(np.float64)
        check_rank(self.rank, x.shape[1], min(self.compress, x.shape[2]), len(x))
        return self._factors(x, basis_of(x, self.compress), self.seeds[0])

    def splits(self, x: np.ndarray, folds: Sequence[Fold]) -> Iterator[tuple[int, int, Split]]:
        """Yield (fold, seed, (training features, test features)).

        Args:
            x: One layer's ``[prompt, place, d_model]``.
            folds: (train, test) indices.
        """
        if self.features == "cp" and not self.inductive:
            basis = basis_of(x, self.compress)
            for seed in self.seeds:
                rows = self._factors(x, basis, seed)
                for at, (train, test) in enumerate(folds):
                    yield at, seed, (rows[train], rows[test])
            return
        for at, (train, test) in enumerate(folds):
            if self.features != "cp":
                flat = x[:, 0].astype(np.float64)
                yield from ((at, seed, (flat[train], flat[test])) for seed in self.seeds)
                continue
            basis = basis_of(x[train], self.compress)
            for seed in self.seeds:
                factors = decompose(x[train], basis, self.rank, self.iterations, seed)
                yield at, seed, (factors.project(x[train]), factors.project(x[test]))

    def _factors(self, x: np.ndarray, basis: np.ndarray, seed: int) -> np.ndarray:
        """All prompts' coordinates, of a decomposition of them all."""
        return decompose(x, basis, self.rank, self.iterations, seed).project(x)
