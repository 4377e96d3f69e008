"""The intervention reading: the answer's probability when tokens are cut off or swapped.

No probe and no groups. *Q-anchored* interventions act at the exact question tokens, *A-anchored*
ones at the answer's tokens; ΔP is the change of the probability of the exact answer that the model
gave (all its tokens), in percentage points.

- knockout, in blocks 0 to k: Q, no later token sees the exact question; A, no token of the answer
  sees another one of the answer. An answer of one token has no such edges: NaN.
- patch, of the stream that enters block k: the run of a paired question is put in, Q at the exact
  question, A at the positions that predict the exact answer's tokens (the token before each of
  them; its own position comes too late to matter).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tlkit.engine.cumulative import cumulative
from tlkit.engine.run import run as run_sweep
from tlkit.engine.sequences import Sequences
from tlkit.engine.values import Progress
from tlkit.models.bridge import Parts
from tlkit.prompts.prompts import Prompts
from tlkit.prompts.spans import Span
from tlkit.spec.interventions import Patch
from tlkit.spec.metrics import AnswerProb
from tlkit.spec.sites import Site
from tlkit.spec.sweeps import Condition, Sweep
from tlkit.studies.pathways.examples import Example, Mode, cut, cut_written
from tlkit.studies.pathways.partners import partners_of

KINDS = ("knockout", "patch")


@dataclass(frozen=True, eq=False)
class Interventions:
    """ΔP of the answer's probability.

    Attributes:
        delta_p: ``[kind, group, layer, example]``, percentage points; groups Q and A.
        control: ``[layer, example]``: the knockout of random tokens.
        base: ``[example]``: the answer's probability when nothing is changed.
        paired: bool ``[example]``: whether there is a paired question.
    """

    delta_p: np.ndarray
    control: np.ndarray
    base: np.ndarray
    paired: np.ndarray


def interventions(
    model: Any, examples: Sequence[Example], layers: Sequence[int], *, mode: Mode, seed: int,
    packed: bool = True, budget: int | None = None, progress: Progress | None = None,
) -> Interventions:  # fmt: skip
    """Cut and patch at question and answer.

    Args:
        model: The model.
        examples: What is run.
        layers: The values of k, rising.
        mode: How edges are cut.
        seed: Draws the paired questions.
        packed: Whether to run packed, or one hooked forward pass per cell.
        budget: Bytes that may be taken besides the weights.
        progress: Called with (done, total).
    """
    parts = Parts(model)
    prompts = answered(examples)
    sequences = Sequences(prompts, "clean", forced=True)
    blocks = range(parts.n_layers)
    lengths = [sequences.length("clean", i) for i in range(len(examples))]
    pairs = list(zip(examples, lengths, strict=True))
    conditions = [
        [cut(e.question, length, blocks, mode) for e, length in pairs],
        [cut_written(e.prompt, length, blocks, mode) for e, length in pairs],
        [cut(e.control, length, blocks, mode) for e, length in pairs],
    ]
    values, base = cumulative(
        parts, sequences, AnswerProb(), conditions, layers, packed=packed, budget=budget,
        progress=progress,
    )  # fmt: skip
    change = 100.0 * (values - base)
    partners = partners_of(examples, seed)
    patched = _patched(model, examples, partners, layers, packed=packed, budget=budget)
    return Interventions(
        np.stack([change[:2], patched]), change[2], base,
        np.array([partner is not None for partner in partners]),
    )  # fmt: skip


def answered(examples: Sequence[Example]) -> Prompts:
    """Each prompt with what was said before the exact answer, and the exact answer to follow."""
    return Prompts.from_tokens(
        [list(e.ids[: e.exact.start]) for e in examples],
        answers=[list(e.ids[e.exact.start :]) for e in examples],
    )


def _patched(
    model: Any, examples: Sequence[Example], partners: Sequence[int | None],
    layers: Sequence[int], *, packed: bool, budget: int | None,
) -> np.ndarray:  # fmt: skip
    """ΔP ``[group, layer, example]`` of patches from the paired question; NaN without one."""
    out = np.full((2, len(layers), len(examples)), np.nan, dtype=np.float32)
    there = [i for i, partner in enumerate(partners) if partner is not None]
    if not there:
        return out
    prompts = _pairs(examples, partners, there)
    sweep = Sweep.over([
        Condition(f"{name} {layer}", (Patch(Site("resid_pre", layer, pos=name), "corrupted"),))
        for name in ("question", "answer")
        for layer in layers
    ])  # fmt: skip
    found = run_sweep(
        model, prompts, sweep, AnswerProb(), on="clean",
        engine="packed" if packed else "reference", budget=budget,
    )  # fmt: skip
    out[:, :, there] = 100.0 * found["effect"].values[0].reshape(2, len(layers), len(there))
    return out


def _pairs(
    examples: Sequence[Example], partners: Sequence[int | None], there: Sequence[int]
) -> Prompts:
    """Each example's run, and the same run with the partner's question in place of its own."""
    own = [examples[i] for i in there]
    others = [examples[partners[i] or 0] for i in there]
    prompts = replace(
        answered(own),
        corrupted=tuple(
            other.ids[: other.prompt] + one.ids[one.prompt : one.exact.start]
            for one, other in zip(own, others, strict=True)
        ),
        alignment=tuple(tuple(range(one.exact.start)) for one in own),
    )
    spans = {
        "question": tuple(Span(one.question[0], one.question[-1] + 1) for one in own),
        # Behind the prompt's end: the engine puts all but the answer's last token there.
        "answer": tuple(Span(one.exact.start - 1, len(one.ids) - 1) for one in own),
    }
    return replace(prompts, spans=spans, corrupted_spans=spans)
