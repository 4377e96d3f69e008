"""Attribution patching: every patch estimated from one forward and one backward pass.

To first order, putting in an activation changes a metric by (source - base) times the metric's
gradient there (Nanda 2023, https://www.neelnanda.io/mechanistic-interpretability/attribution-patching;
Syed et al. 2023, arXiv:2310.10348). It is an estimate: where the metric bends, as it does most at
the first layers' streams, it may be far off.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tlkit.engine.edits import Edit
from tlkit.engine.packed_values import DEFAULT_BUDGET, run_bytes_per_token
from tlkit.engine.readout import Reading
from tlkit.engine.record import padded, record
from tlkit.engine.reference import capture, hook_name
from tlkit.engine.route import route_of
from tlkit.engine.sequences import Sequences
from tlkit.engine.sources import Captured, Place
from tlkit.engine.values import Backend, Finished, Job, Progress
from tlkit.errors import EngineError, SpecError
from tlkit.models.bridge import Parts
from tlkit.spec.interventions import Patch
from tlkit.spec.metrics import KL, AnswerRank
from tlkit.spec.readout import Metric
from tlkit.spec.sites import EDGES
from tlkit.spec.sweeps import AnyIntervention

KEPT = 16
"""Bytes that a backward pass holds, as a multiple of what a recorded run keeps of a token."""


class _Reached(Exception):
    """Raised to leave out what comes behind the last block."""


class GradientBackend:
    """Estimates jobs; baselines are exact.

    Args:
        parts: The model.
        sequences: Token sequences.
        metrics: What is measured.
        exact: What measures unchanged runs.
        budget: Bytes that may be taken besides the weights.
    """

    name = "gradient"

    def __init__(
        self, parts: Parts, sequences: Sequences, metrics: Sequence[Metric], exact: Backend, *,
        budget: int | None = None,
    ) -> None:  # fmt: skip
        self.parts, self.sequences, self.metrics, self.exact = parts, sequences, metrics, exact
        self.budget = budget or DEFAULT_BUDGET
        self.readings = [Reading(m, sequences, sequences.base, parts.device) for m in metrics]
        self.estimates: dict[tuple[int, int], np.ndarray] = {}
        """Per (cell, example), the estimated value of each metric."""

    def baseline(self, run: str) -> np.ndarray:
        """Values of an unchanged run: ``[metric, example]``."""
        return self.exact.baseline(run)

    def run(self, jobs: Sequence[Job], finished: Finished, progress: Progress | None) -> None:
        """Estimate jobs, some examples at a time; what is estimated is never "finished"."""
        base = self.baseline(self.sequences.base)
        for examples in self._batches():
            some = [job for job in jobs if job.example in examples]
            if some:
                changes = self._changes(examples, [e for job in some for e in job.worked.edits])
                for job in some:
                    row = job.example - examples.start
                    change = sum(
                        _total(changes[edit.component, edit.layer, edit.run], edit, row)
                        for edit in job.worked.edits
                    )
                    self.estimates[job.cell, job.example] = base[:, job.example] + change
            if progress:
                progress(examples.stop, len(self.sequences.prompts))

    def _batches(self) -> Iterator[range]:
        """Neighbouring examples whose backward pass fits the budget."""
        lengths = [len(ids) for ids in self.sequences.runs[self.sequences.base]]
        size = KEPT * run_bytes_per_token(self.parts)
        first = 0
        for i in range(len(lengths)):
            if i > first and (i + 1 - first) * max(lengths[first : i + 1]) * size > self.budget:
                yield range(first, i)
                first = i
        yield range(first, len(lengths))

    def _changes(self, examples: range, edits: Sequence[Edit]) -> dict[Any, np.ndarray]:
        """Per component, layer and source run: ``[metric, example, pos]``, or with heads behind.

        Each number is what patching that one activation, of all its features, is expected to do.
        """
        asked = {(edit.component, edit.layer, edit.run or "") for edit in edits}
        places = {(component, layer) for component, layer, _ in asked}
        own, gradients = self._gradients(examples, places)
        found = {}
        for run in {run for _, _, run in asked}:
            theirs = self._capture(run, examples, places)
            for component, layer, _ in {one for one in asked if one[2] == run}:
                place = component, layer
                put = self._aligned(theirs[place], own[place], run, examples)
                change = ((put - own[place]).float() * gradients[place].float()).sum(-1)
                found[component, layer, run] = change.cpu().numpy()
        return found

    def _aligned(self, theirs: Tensor, own: Tensor, run: str, examples: range) -> Tensor:
        """A source run's activations, at the base run's positions where they are aligned."""
        put = own.clone()
        for row, example in enumerate(examples):
            length = self.sequences.length(self.sequences.base, example)
            pairs = [(p, self.sequences.source_position(run, example, p)) for p in range(length)]
            mapped = [(p, at) for p, at in pairs if at >= 0]
            if mapped:
                here, there = (list(column) for column in zip(*mapped, strict=True))
                put[row, here] = theirs[row, there]
        return put

    def _capture(self, run: str, examples: range, places: set[Place]) -> Captured:
        """Sites of a run, ``[example, pos, ...]``."""
        ids = self.sequences.runs[run][examples.start : examples.stop]
        if route_of(self.parts).packed:
            return record(self.parts, ids, places, full=False).sites
        rows = capture(self.parts, ids, places)
        return {
            place: torch.nn.utils.rnn.pad_sequence(rows[place], batch_first=True)
            for place in places
        }

    def _gradients(
        self, examples: range, places: set[Place]
    ) -> tuple[Captured, dict[Place, Tensor]]:
        """Activations, and each metric's gradients there, ``[metric, example, pos, ...]``."""
        streams, own, last = self._forward(examples, places)
        order, found = list(streams), []
        for index, reading in enumerate(self.readings):
            with torch.enable_grad():
                logits = reading.base_logits(self.parts, last, examples)
                values = reading.metric(reading.readout(tuple(examples), logits, logits.detach()))
            if not values.requires_grad:
                raise SpecError(
                    f"The metric {reading.metric.name!r} has no gradient, so patches cannot be "
                    f"estimated; use engine='packed'."
                )
            found.append(torch.autograd.grad(
                values.sum(), [streams[place] for place in order],
                retain_graph=index + 1 < len(self.readings), allow_unused=True,
            ))  # fmt: skip
        stacked = {}
        for place, several in zip(order, zip(*found, strict=True), strict=True):
            if any(gradient is None for gradient in several):
                raise EngineError(f"{self.parts.name}: nothing depends on {place[0]} {place[1]}.")
            stacked[place] = self._headed(place[0], torch.stack(several))
        return own, stacked

    def _forward(
        self, examples: range, places: set[Place]
    ) -> tuple[dict[Place, Tensor], Captured, Tensor]:
        """Tensors in a graph of gradients, activations, and the last block's stream."""
        parts, kept = self.parts, {}
        own: Captured = {}

        def begin(value: Tensor, hook: Any) -> None:
            if not value.requires_grad:
                value.requires_grad_()

        def keeper(key: Any) -> Any:
            def keep(value: Tensor, hook: Any) -> Tensor:
                kept[key] = value
                # A copy, for some blocks go on adding to it in place.
                own[key] = self._headed(key[0], value.detach()[None])[0].clone()
                return value  # else, where heads are a view made for the hook, it leads nowhere

            return keep

        def end(value: Tensor, hook: Any) -> None:
            kept["last"] = value
            raise _Reached

        # The stream between attention and MLP moves as what attention adds to it.
        middles = [layer for component, layer in places if component == "resid_mid"]
        watched = {place for place in places if place[0] != "resid_mid"}
        watched |= {(part, layer) for layer in middles for part in ("resid_pre", "attn_out")}
        hooks = [(hook_name("embed", 0), begin)]
        hooks += [(hook_name(*place), keeper(place)) for place in watched]
        hooks.append((hook_name("resid_post", parts.n_layers - 1), end))
        ids = self.sequences.runs[self.sequences.base][examples.start : examples.stop]
        tokens, _ = padded(ids, parts.device)
        with torch.enable_grad(), contextlib.suppress(_Reached):
            parts.bridge.run_with_hooks(tokens, fwd_hooks=hooks, return_type=None)
        for layer in middles:
            kept["resid_mid", layer] = kept["attn_out", layer]
            own["resid_mid", layer] = own["resid_pre", layer] + own["attn_out", layer]
        return {place: kept[place] for place in places}, own, kept["last"]

    def _headed(self, component: str, value: Tensor) -> Tensor:
        """q, k, v and z with their axis of heads, ``[metric, example, pos, head, d_head]``."""
        if component in ("q", "k", "v", "z") and value.ndim == 4:
            heads = self.parts.n_kv_heads if component in ("k", "v") else self.parts.n_heads
            return value.unflatten(-1, (heads, -1))
        return value


def _total(change: np.ndarray, edit: Edit, row: int) -> np.ndarray:
    """The summed change of an edit's positions and heads, ``[metric]``."""
    at = change[:, row, list(edit.positions)]
    if edit.head is not None:
        at = at[..., edit.head]
    return at.reshape(len(change), -1).sum(1)


def refuse_estimates(
    interventions: Sequence[AnyIntervention], metrics: Sequence[Metric], given: Sequence[Any]
) -> None:
    """Refuse what has no first-order estimate.

    Raises:
        SpecError: With the reason.
    """
    if given:
        raise SpecError("Gradients are taken at the plain base run; use engine='packed' for given.")
    for one in interventions:
        if not isinstance(one, Patch) or type(one).edit is not Patch.edit:
            raise SpecError(
                f"Gradients estimate patches, and {type(one).__name__} is none; use "
                f"engine='packed'."
            )
        if one.site.component in EDGES:
            raise SpecError(
                f"Gradients estimate patches of streams, heads and neurons, not of "
                f"{one.site.component}; use engine='packed'."
            )
    for metric in metrics:
        if isinstance(metric, KL):
            raise SpecError(
                "KL is at its minimum in the base run, where its gradient is 0 and tells nothing; "
                "use LogitDiff, or engine='packed'."
            )
        if isinstance(metric, AnswerRank):
            raise SpecError("A rank has no gradient; use LogitDiff, or engine='packed'.")
