"""What interventions put in: activations of other runs, means, and other examples' activations."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from tlkit.engine.edits import EDGE, Edit
from tlkit.engine.sequences import Sequences
from tlkit.errors import SpecError
from tlkit.spec.interventions import Ablate
from tlkit.spec.sites import EDGES

Place = tuple[str, int]
"""A component and its layer."""
Captured = dict[Place, Any]
"""Per place: one activation ``[pos, ...]`` (or ``[head, query, key]``) per example."""
Capture = Callable[[list[list[int]], set[Place]], Captured]


class Sources:
    """Gathers, with one capture per run, everything that a set of edits reads.

    Args:
        capture: How activations are got.
        sequences: Token sequences.
        edits: What will be asked for.
        examples: The examples that will be asked for (all, if None); means and other examples'
            activations are drawn from all of them in any case.
    """

    def __init__(
        self, capture: Capture, sequences: Sequences, edits: Iterable[Edit],
        examples: range | None = None,
    ) -> None:  # fmt: skip
        self._sequences = sequences
        self._examples = examples or range(len(sequences.prompts))
        wanted: dict[Any, set[Place]] = {}
        for edit in edits:
            key = _key(edit)
            if key is not None:
                wanted.setdefault(key, set()).add((edit.component, edit.layer))
        self._ids: dict[Any, list[list[int]]] = {}
        self._captured: dict[Any, Captured] = {}
        for key, places in wanted.items():
            self._ids[key] = self._sequences_of(key)
            self._captured[key] = capture(self._ids[key], places)
        self._means: dict[Any, Tensor] = {}

    def _sequences_of(self, key: Any) -> list[list[int]]:
        kind, which = key
        if kind == "run":
            return self._sequences.runs[which][self._examples.start : self._examples.stop]
        if which is None:
            return self._sequences.runs[self._sequences.base]
        return [list(ids) for ids in which.clean]

    def get(self, edit: Edit, example: int) -> Tensor | None:
        """The activation that an edit gets as its source, narrowed as the edit is."""
        key = _key(edit)
        if key is None:
            return None
        rows = self._captured[key][edit.component, edit.layer]
        if key[0] == "run":
            return narrow(rows[example - self._examples.start], edit, edit.sources)
        ablation: Any = edit.intervention
        if ablation.value == "resample":
            return self._resampled(rows, edit, example, len(self._ids[key]))
        return self._mean(rows, edit, self._ids[key], ablation)

    def _resampled(self, rows: Any, edit: Edit, example: int, count: int) -> Tensor:
        ablation: Any = edit.intervention
        own = ablation.reference is None
        if own and count < 2:
            raise SpecError("Ablate('resample') needs a second example, or reference=Prompts.")
        generator = torch.Generator().manual_seed(ablation.seed)
        if own:
            # A cyclic shift of a random order: nobody is drawn as their own replacement.
            order = torch.randperm(count, generator=generator).tolist()
            other = order[(order.index(example) + 1) % count]
        else:
            other = int(torch.randint(count, (example + 1,), generator=generator)[-1])
            other = self._another(other, ablation.reference.clean, example)
        activation = rows[other]
        last = len(self._ids[_key(edit)][other]) - 1
        return narrow(activation, edit, tuple(min(p, last) for p in edit.positions))

    def _another(self, drawn: int, reference: Any, example: int) -> int:
        """The drawn prompt, or the next one that is not the very prompt that it replaces."""
        own = tuple(getattr(self._sequences.prompts, self._sequences.base)[example])
        order = [*range(drawn, len(reference)), *range(drawn)]
        return next((other for other in order if tuple(reference[other]) != own), drawn)

    def _mean(self, rows: Any, edit: Edit, ids: list[list[int]], ablation: Ablate) -> Tensor:
        cached = (id(ablation.reference), edit.component, edit.layer, ablation.per_position)
        if cached not in self._means:
            longest = max(len(one) for one in ids)
            total = rows[0].new_zeros((longest, *rows[0].shape[1:]), dtype=torch.float64)
            count = torch.zeros(longest, dtype=torch.float64, device=total.device)
            for row, one in zip(rows, ids, strict=False):
                total[: len(one)] += row[: len(one)]
                count[: len(one)] += 1
            if not ablation.per_position:
                total, count = total.sum(0, keepdim=True), count.sum(0, keepdim=True)
            shape = (-1, *[1] * (total.ndim - 1))
            self._means[cached] = (total / count.view(shape)).to(rows[0].dtype)
        mean = self._means[cached]
        where = [min(p, len(mean) - 1) for p in edit.positions]
        mean = mean[where] if ablation.per_position else mean.expand(len(where), *mean.shape[1:])
        return mean if edit.head is None else mean[:, edit.head]


def _key(edit: Edit) -> Any:
    """Which capture an edit reads from, or None."""
    if edit.component == EDGE:
        return None
    needs = edit.intervention.needs  # type: ignore[union-attr]
    if needs == "nothing":
        return None
    if needs == "run":
        return ("run", edit.run)
    if edit.component in EDGES:
        raise SpecError(f"Ablate({needs!r}) of {edit.component} is not defined; use 'zero'.")
    return (needs, edit.intervention.reference)  # type: ignore[union-attr]


def narrow(activation: Tensor, edit: Edit, where: tuple[int, ...]) -> Tensor:
    """One example's activation at an edit's head, positions and keys."""
    if edit.component in EDGES:
        rows = activation[:, list(where)][:, :, list(edit.keys)]
        return rows if edit.head is None else rows[edit.head]
    rows = activation[list(where)]
    return rows if edit.head is None else rows[:, edit.head]
