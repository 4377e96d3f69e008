"""What a model does on held-out prompts: unchanged, without the direction, without a random one."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tlkit.models.bridge import Parts
from tlkit.prompts.prompts import Prompts
from tlkit.results.statistics import wilson_interval
from tlkit.spec.directions import Direction
from tlkit.studies.abliteration.candidates import Writer
from tlkit.studies.abliteration.forward import kl, logits_of_rows, losses, prefix_odds
from tlkit.studies.abliteration.projection import Strengths, projected
from tlkit.studies.behaviour import CLASSES, Detector, disagreement, verdicts

CHUNK = 8
"""Answers whose logits over the whole vocabulary are in memory at once."""
MODELS = ("original", "abliterated", "random direction")


@dataclass
class Evaluated:
    """Variables and coordinates for the study's dataset."""

    variables: dict[str, tuple]
    labels: dict[str, Any]


@dataclass
class _One:
    """One model's answers and numbers."""

    verdicts: dict[str, list[str]]
    harmless_verdicts: dict[str, list[str]]
    texts: list[str]
    harmless_texts: list[str]
    loss: np.ndarray
    along: list[Tensor]


def evaluate(
    model: Any, harmful: Prompts, harmless: Prompts, directions: Sequence[Direction],
    weights: Strengths, detectors: Mapping[str, Detector], prefixes: Sequence[tuple[int, ...]],
    write: Writer, progress: Callable[[int, int], None],
) -> Evaluated:  # fmt: skip
    """Let each of `MODELS` answer, and follow it along the unchanged model's answers.

    Args:
        model: The model.
        harmful: Prompts that show the behaviour, none of which the directions are from.
        harmless: Prompts that do not.
        directions: The chosen one and a random one.
        weights: Strength by layer.
        detectors: By name.
        prefixes: Token ids of how refusals start.
        write: Writes answers.
        progress: Called with (models done, models in all).
    """
    parts = Parts(model)
    answers, _ = write(harmless)
    rows = [[*ids, *new] for ids, new in zip(harmless.clean, answers, strict=True)]
    first = [len(ids) - 1 for ids in harmless.clean]
    found = []
    for at, direction in enumerate((None, *directions)):
        without = contextlib.nullcontext() if direction is None else projected(
            model, direction, weights
        )  # fmt: skip
        with without:
            odds = [prefix_odds(parts, p.clean, prefixes).tolist() for p in (harmful, harmless)]
            texts = [write(p)[1] for p in (harmful, harmless)]
            own = losses(parts, harmless.clean).cpu().numpy()
        along = _along(model, rows, first, direction, weights)
        told = [verdicts(t, detectors, o) for t, o in zip(texts, odds, strict=True)]
        found.append(_One(told[0], told[1], texts[0], texts[1], own, along))
        progress(at + 1, len(MODELS))
    return _collected(found, harmful, harmless)


def _along(
    model: Any, rows: Sequence[list[int]], first: Sequence[int], direction: Direction | None,
    weights: Strengths,
) -> list[Tensor]:  # fmt: skip
    """KL to the unchanged model at each token of its answers; an empty answer has its first."""
    parts, found = Parts(model), list[Tensor]()
    wanted = [max(1, len(ids) - 1 - at) for ids, at in zip(rows, first, strict=True)]
    if direction is None:
        return [torch.zeros(n) for n in wanted]
    for start in range(0, len(rows), CHUNK):
        part = slice(start, start + CHUNK)
        base = logits_of_rows(parts, rows[part], first[part])
        with projected(model, direction, weights):
            changed = logits_of_rows(parts, rows[part], first[part])
        found += [kl(one, other) for one, other in zip(base, changed, strict=True)]
    return [one[:n] for one, n in zip(found, wanted, strict=True)]


def _collected(found: Sequence[_One], harmful: Prompts, harmless: Prompts) -> Evaluated:
    names = list(found[0].verdicts)
    by = ("model", "detector")
    variables: dict[str, tuple] = {}
    for prefix, kinds in (
        ("", [one.verdicts for one in found]),
        ("harmless_", [one.harmless_verdicts for one in found]),
    ):
        rates, shares = _rates(kinds, names)
        for i, end in enumerate(("rate", "low", "high")):
            variables[f"{prefix}refusal_{end}"] = (by, rates[i], "fraction")
        variables[f"{prefix}share"] = ((*by, "kind"), shares, "fraction")
        apart = [disagreement(one) for one in kinds]
        variables[f"{prefix}disagreement"] = (("model",), apart, "fraction")
    longest = max(len(row) for one in found for row in one.along)
    along = np.full((len(found), longest, len(harmless)), np.nan)
    for i, one in enumerate(found):
        for j, row in enumerate(one.along):
            along[i, : len(row), j] = row.cpu().numpy()
    variables |= {
        "answer_kl": (("model", "step", "harmless"), along, "nats"),
        "loss": (("model", "harmless"), np.stack([one.loss for one in found])),
        "harmful_answer": (("model", "harmful"), [one.texts for one in found], "text"),
        "harmless_answer": (("model", "harmless"), [one.harmless_texts for one in found], "text"),
        "harmful_prompt": (("harmful",), _asked(harmful), "text"),
        "harmless_prompt": (("harmless",), _asked(harmless), "text"),
    }
    return Evaluated(variables, {"detector": names, "kind": list(CLASSES)})


def _rates(
    kinds: Sequence[Mapping[str, Sequence[str]]], names: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """``[rate, low or high; model; detector]`` of refusals, and shares of every class."""
    rates = np.zeros((3, len(kinds), len(names)))
    shares = np.zeros((len(kinds), len(names), len(CLASSES)))
    for i, verdict in enumerate(kinds):
        for j, name in enumerate(names):
            counts = [list(verdict[name]).count(kind) for kind in CLASSES]
            n = len(verdict[name])
            shares[i, j] = np.array(counts) / n
            rates[:, i, j] = (counts[0] / n, *wilson_interval(counts[0], n))
    return rates, shares


def _asked(prompts: Prompts) -> list[str]:
    """What was asked, as text; token ids where there is none."""
    return list(prompts.clean_texts) or [str(list(ids)) for ids in prompts.clean]
