"""Verdicts after tokens were replaced, and verdicts of the answer alone.

Token patching (Luo et al. 2026, arXiv:2601.07422, section 3): answers that are right, and that the
probe takes for right, get the exact question tokens of another question that the model answered
wrongly; the flip rate is how often the probe then says "wrong". Controls: as many random tokens of
the prompt replaced by random ones of the other prompt, and the exact answer's tokens replaced by
the other answer's. The text grows or shrinks with what is put in; it is run afresh.

Answer alone: the prompt is removed (a start token stays), and the answer run afresh. ΔP is the
change of the probability of the class that the probe gave the answer behind its question.
"""

import zlib
from collections.abc import Sequence

import numpy as np

from tlkit.models.info import info
from tlkit.studies.pathways.activations import read_states
from tlkit.studies.pathways.examples import Example
from tlkit.studies.pathways.group import delta_p
from tlkit.studies.pathways.part import GROUPS
from tlkit.studies.pathways.task import Task
from tlkit.studies.probes import cross_fitted

REPLACED = ("exact question", "random tokens", "answer tokens")
"""What token patching replaces."""


def measure(task: Task) -> None:
    """Add flips per example, flip rates per group, and ΔP of the answer alone."""
    if not task.probed("Replacing tokens"):
        return
    settings = task.settings
    donors = donors_of(task.examples, settings.seed)
    bos = info(task.model).bos
    lonely = [alone(one, bos=bos) for one in task.examples]
    features = {"base": task.base, "alone": _states(task, lonely)}
    for name in REPLACED:
        rows = [
            None if donor is None else replaced(name, one, task.examples[donor], settings.seed)
            for one, donor in zip(task.examples, donors, strict=True)
        ]
        features[name] = _states(task, rows)
    found = cross_fitted(
        features, task.wrong, task.groups, folds=settings.folds, seeds=settings.seeds,
        c=settings.c, balanced=settings.balanced,
    ).probability  # fmt: skip
    base = found["base"]
    task.part.add(
        "answer_only_delta_p", ("layer", "example"), delta_p(base, found["alone"]),
        "percentage points", task.examples,
    )  # fmt: skip
    flips = np.stack([flipped(base, found[name], task.wrong) for name in REPLACED])
    dims = ("control", "layer", "example")
    task.part.add("flipped", dims, flips, "true or false, NaN if not asked", task.examples)
    q_anchored = task.groups_found()
    assert q_anchored is not None  # the group reading was done, or probes were refused above
    rates, sizes = flip_rates(flips, q_anchored)
    dims = ("control", "group", "layer")
    task.part.add("flip_rate", dims, rates, "fraction")
    task.part.add("flip_rate_n", dims, sizes, "examples")


def donors_of(examples: Sequence[Example], seed: int) -> list[int | None]:
    """Whose tokens are put into each right answer's run: a wrong answer's, of another question.

    One of the same relation where there is one. Wrong answers have no donor.
    """
    generator = np.random.default_rng([seed, 2])
    wrong = [i for i, one in enumerate(examples) if one.wrong]
    found: list[int | None] = []
    for one in examples:
        others = [i for i in wrong if _question(examples[i]) != _question(one)]
        alike = [i for i in others if examples[i].relation == one.relation] or others
        found.append(None if one.wrong or not alike else int(generator.choice(alike)))
    return found


def _question(one: Example) -> tuple[int, ...]:
    return tuple(one.ids[p] for p in one.question)


def replaced(name: str, one: Example, donor: Example, seed: int) -> tuple[int, ...] | None:
    """An example's tokens with some of them another's; None where that cannot be done.

    Args:
        name: One of `REPLACED`.
        one: The example.
        donor: Whose tokens are put in.
        seed: Draws the random tokens that are put in.
    """
    if name == "exact question":
        first, last = one.question[0], one.question[-1]
        return (*one.ids[:first], *_question(donor), *one.ids[last + 1 :])
    if name == "answer tokens":
        return (*one.ids[: one.exact.start], *donor.ids[donor.exact.start :])
    pool = [donor.ids[p] for p in range(1, donor.prompt) if p not in donor.question]
    if one.control is None or not pool:
        return None
    generator = np.random.default_rng([seed, zlib.crc32(repr(one.ids).encode())])
    ids = list(one.ids)
    for position, token in zip(one.control, generator.choice(pool, len(one.control)), strict=True):
        ids[position] = int(token)
    return tuple(ids)


def alone(one: Example, *, bos: bool) -> tuple[int, ...]:
    """An answer without its question, behind the start token if the model's text has one."""
    return (*one.ids[: int(bos)], *one.ids[one.prompt :])


def _states(task: Task, rows: Sequence[tuple[int, ...] | None]) -> np.ndarray:
    """States at the ends of sequences, ``[layer, example, d_model]``; NaN where there is none."""
    there = [i for i, row in enumerate(rows) if row is not None]
    shape = (task.parts.n_layers, len(rows), task.parts.d_model)
    found = np.full(shape, np.nan, dtype=np.float32)
    if there:
        ids = [row for row in rows if row is not None]
        found[:, there] = read_states(task, ids, [(len(row) - 1,) for row in ids])[:, :, 0]
    return found


def flipped(base: np.ndarray, changed: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """1 where a right answer that was taken for right is now taken for wrong, 0 where it is not.

    Args:
        base: Probability of "wrong", ``[layer, example]``.
        changed: The same after tokens were replaced; NaN where none were.
        wrong: Bool ``[example]``.

    Returns:
        float32 ``[layer, example]``, NaN for all other answers.
    """
    asked = ~wrong[None] & (base <= 0.5) & ~np.isnan(changed)
    return np.where(asked, changed > 0.5, np.nan).astype(np.float32)


def flip_rates(flips: np.ndarray, q_anchored: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Share of flips in either group: ``[control, group, layer]``, and how many were asked."""
    sides = [q_anchored, ~q_anchored]
    assert len(sides) == len(GROUPS)
    there = np.stack([~np.isnan(flips) & side[None] for side in sides], axis=1)
    sizes = there.sum(-1)
    hits = (np.nan_to_num(flips)[:, None] * there).sum(-1)
    with np.errstate(invalid="ignore"):
        return (hits / sizes).astype(np.float32), sizes.astype(np.float32)
