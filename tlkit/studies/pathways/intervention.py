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
from tlkit.engine.edits import Compiler, Worked
from tlkit.engine.sequences import Sequences
from tlkit.engine.values import Progress
from tlkit.models.bridge import Parts
from tlkit.prompts.prompts import Prompts
from tlkit.prompts.spans import Span
from tlkit.spec.interventions import Patch
from tlkit.spec.metrics import AnswerProb
from tlkit.spec.sites import Site
from tlkit.spec.sweeps import Condition
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
    parts, partners = Parts(model), partners_of(examples, seed)
    sequences = Sequences(with_partners(examples, partners), "clean", forced=True)
    blocks, lengths = range(parts.n_layers), [len(e.ids) - 1 for e in examples]
    pairs = list(zip(examples, lengths, strict=True))
    cuts = [
        [cut(e.question, length, blocks, mode) for e, length in pairs],
        [cut_written(e.prompt, length, blocks, mode) for e, length in pairs],
        [cut(e.control, length, blocks, mode) for e, length in pairs],
    ]
    found = cumulative(
        parts, sequences, AnswerProb(), cuts, layers,
        others=_patches(parts, sequences, partners, layers), packed=packed, budget=budget,
        progress=progress,
    )  # fmt: skip
    change = 100.0 * (found.values - found.base)
    patched = 100.0 * (found.others - found.base).reshape(2, len(layers), len(examples))
    there = np.array([partner is not None for partner in partners])
    return Interventions(np.stack([change[:2], patched]), change[2], found.base, there)


def _patches(
    parts: Parts, sequences: Sequences, partners: Sequence[int | None], layers: Sequence[int]
) -> list[list[Worked]]:
    """Patches from the partner's run, at the question at each layer, then at the answer."""
    compiler = Compiler(sequences, parts.n_layers, parts.n_heads, parts.n_kv_heads)
    lonely = Worked((), "missing")
    conditions = [
        Condition(f"{name} {layer}", (Patch(Site("resid_pre", layer, pos=name), "corrupted"),))
        for name in ("question", "answer")
        for layer in layers
    ]
    return [
        [
            lonely if partner is None else compiler.work_out(condition, i)
            for i, partner in enumerate(partners)
        ]
        for condition in conditions
    ]


def answered(examples: Sequence[Example]) -> Prompts:
    """Each prompt with what was said before the exact answer, and the exact answer to follow."""
    return Prompts.from_tokens(
        [list(e.ids[: e.exact.start]) for e in examples],
        answers=[list(e.ids[e.exact.start :]) for e in examples],
    )


def with_partners(examples: Sequence[Example], partners: Sequence[int | None]) -> Prompts:
    """Each example's run, and the same run with the partner's question in place of its own.

    An example without a partner stands beside itself.
    """
    others = [
        one if partner is None else examples[partner]
        for one, partner in zip(examples, partners, strict=True)
    ]
    spans = {
        "question": tuple(Span(one.question[0], one.question[-1] + 1) for one in examples),
        # Behind the prompt's end: the engine puts all but the answer's last token there.
        "answer": tuple(Span(one.exact.start - 1, len(one.ids) - 1) for one in examples),
    }
    return replace(
        answered(examples),
        corrupted=tuple(
            other.ids[: other.prompt] + one.ids[one.prompt : one.exact.start]
            for one, other in zip(examples, others, strict=True)
        ),
        alignment=tuple(tuple(range(one.exact.start)) for one in examples),
        spans=spans,
        corrupted_spans=spans,
    )
