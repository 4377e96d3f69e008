"""`tk.layer_probes.bypass`: skip the layers that see a class in a prompt, and compare answers."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tlkit.engine.generate import greedy
from tlkit.engine.skipping import skipping
from tlkit.errors import SpecError
from tlkit.models.bridge import Parts
from tlkit.prompts.prompts import Prompts
from tlkit.results.provenance import provenance
from tlkit.results.schema import build
from tlkit.results.statistics import wilson_interval
from tlkit.studies.answer_store import stop_tokens
from tlkit.studies.behaviour import CLASSES, refused
from tlkit.studies.layer_probes.features import Making
from tlkit.studies.layer_probes.readers import asked, trained
from tlkit.studies.layer_probes.rows import labelled

CONDITIONS = ("plain", "bypassed", "random layers")
UNLABELLED = "unlabelled"


def bypass(
    model: Any,
    rows_train: Iterable[Any],
    prompts: Iterable[Any],
    *,
    positive: str,
    threshold: int | float = 0.5,
    most: int = 3,
    site: str = "resid_post",
    making: Making | None = None,
    behaviour: Callable[[str], str] | None = None,
    max_new_tokens: int = 32,
    chat: bool = False,
    seed: int = 0,
) -> Any:
    """Skip, for each prompt, the blocks whose probe sees the positive class in it.

    One logistic probe per layer learns from labelled prompts. For a new prompt, the blocks whose
    probe is surer than `threshold` of the positive class are left out (the stream passes
    unchanged), in the prompt's pass and at every new token; after Kadali & Papalexakis,
    arXiv:2602.11495. As many blocks drawn at random are the control: any skip changes answers.

    Args:
        model: A loaded model.
        rows_train: Mappings with ``prompt`` and ``label``.
        prompts: Prompts that are continued: texts, or mappings with ``prompt`` and perhaps
            ``label``; shares are told per label.
        positive: The label of the class whose layers are skipped.
        threshold: Least probability that skips a layer, exclusive.
        most: Most layers that are skipped for a prompt.
        site: Where probes read: ``"resid_post"`` or ``"attn_out"``.
        making: How features are made, as in `run`; `Making()` if None.
        behaviour: Judges a continuation; `tlkit.studies.behaviour.refused` if None.
        max_new_tokens: Most tokens of a continuation (greedy).
        chat: Put the chat template around all prompts.
        seed: Draws the random layers.

    Returns:
        An xarray Dataset: ``text`` and ``outcome`` (condition, example), ``skipped`` (condition,
        layer, example), ``probability`` (layer, example); per label of the prompts ``share`` of
        each outcome with ``share_low``, ``share_high`` (95 %, Wilson) (condition, group, kind),
        and ``unchanged`` (condition, group), the share continued exactly as without a skip.

    Raises:
        SpecError: Something cannot be used; the message names it.
    """
    started = time.perf_counter()
    making, train = making or Making(), labelled(rows_train, positive)
    texts, labels = _read_all(prompts)
    _check(making, len(train.texts), threshold, most)
    probes, places = trained(model, train, site, making, chat=chat)
    probability = asked(model, texts, site, making, probes, places, chat=chat)
    skipped = chosen_layers(probability, threshold, most, seed)
    said = [_continued(model, texts, sets, max_new_tokens, chat=chat) for sets in skipped]
    attrs = provenance(
        model, engine="cached", study="bypass", seed=seed, positive=positive, site=site,
        threshold=threshold, most=most, features=making.features, max_new_tokens=max_new_tokens,
        chat=chat, trained_on=len(train.texts), seconds=round(time.perf_counter() - started, 3),
    )  # fmt: skip
    return _dataset(Continued(probability, skipped, said, labels), behaviour or refused, attrs)


def chosen_layers(
    probability: np.ndarray, threshold: float, most: int, seed: int
) -> list[list[tuple[int, ...]]]:
    """The layers that each condition skips for each prompt: none, the surest, as many others.

    Args:
        probability: ``[layer, prompt]``.
        threshold: Least probability, exclusive.
        most: Most layers of a prompt.
        seed: Draws the control's layers from all.
    """
    rng = np.random.default_rng(seed)
    surest, drawn = [], []
    for column in probability.T:
        order = np.argsort(-column, kind="stable")[:most]
        picked = tuple(sorted(int(at) for at in order if column[at] > threshold))
        surest.append(picked)
        drawn.append(tuple(sorted(rng.choice(len(column), len(picked), replace=False).tolist())))
    return [[() for _ in surest], surest, drawn]


def _read_all(prompts: Iterable[Any]) -> tuple[list[str], np.ndarray]:
    """Texts and labels of the prompts that are continued."""
    read = [_read(row, number) for number, row in enumerate(prompts)]
    if not read:
        raise SpecError("There are no prompts to continue; give at least one.")
    return [text for text, _ in read], np.array([label for _, label in read])


def _read(row: Any, number: int) -> tuple[str, str]:
    if isinstance(row, str) and row:
        return row, UNLABELLED
    text = row.get("prompt") if isinstance(row, Mapping) else None
    if not isinstance(text, str) or not text:
        raise SpecError(f"Prompt {number} is no text and no row with a 'prompt'.")
    label = row.get("label") if isinstance(row, Mapping) else None
    return text, UNLABELLED if label is None else str(label)


def _check(making: Making, trained_on: int, threshold: int | float, most: int) -> None:
    making.check(trained_on)
    if not 0 <= threshold <= 1:
        raise SpecError(f"threshold is a probability between 0 and 1, not {threshold}.")
    if most < 1:
        raise SpecError(f"most is {most}; let at least one layer be skipped.")


def _continued(
    model: Any, texts: Sequence[str], sets: Sequence[tuple[int, ...]], new: int, *, chat: bool
) -> list[str]:
    """Greedy continuations; prompts that skip the same layers go through the model together."""
    prompts, parts = Prompts.from_texts(model, texts, chat=chat), Parts(model)
    stop, found = stop_tokens(model, chat=chat), dict[int, str]()
    for layers in sorted(set(sets)):
        which = [i for i, one in enumerate(sets) if one == layers]
        with skipping(parts, layers):
            rows = greedy(model, [prompts.clean[i] for i in which], max_new_tokens=new, stop=stop)
        found |= {
            i: model.tokenizer.decode(row, skip_special_tokens=True)
            for i, row in zip(which, rows, strict=True)
        }
    return [found[i] for i in range(len(texts))]


@dataclass(frozen=True, eq=False)
class Continued:
    """What was skipped for each prompt, and what came of it, per condition."""

    probability: np.ndarray
    skipped: list[list[tuple[int, ...]]]
    said: list[list[str]]
    labels: np.ndarray


def _dataset(found: Continued, judge: Callable[[str], str], attrs: dict[str, Any]) -> Any:
    layers, count = found.probability.shape
    outcomes = np.array([[judge(text) for text in row] for row in found.said])
    kinds = [*CLASSES, *sorted(set(outcomes.ravel().tolist()) - set(CLASSES))]
    groups = sorted(set(found.labels.tolist()))
    skipped = np.zeros((len(CONDITIONS), layers, count), bool)
    for i, sets in enumerate(found.skipped):
        for j, some in enumerate(sets):
            skipped[i, list(some), j] = True
    share = np.zeros((3, len(CONDITIONS), len(groups), len(kinds)))
    unchanged = np.zeros((len(CONDITIONS), len(groups)))
    said = np.array(found.said)
    for j, group in enumerate(groups):
        of = found.labels == group
        unchanged[:, j] = (said[:, of] == said[0, of]).mean(1)
        for i, row in enumerate(outcomes[:, of]):
            for k, kind in enumerate(kinds):
                right = int((row == kind).sum())
                share[:, i, j, k] = right / len(row), *wilson_interval(right, len(row))
    cells = ("condition", "group", "kind")
    variables: dict[str, tuple] = {
        "probability": (("layer", "example"), found.probability, "probability"),
        "skipped": (("condition", "layer", "example"), skipped, "true or false"),
        "text": (("condition", "example"), said, "text"),
        "outcome": (("condition", "example"), outcomes, "text"),
        "share": (cells, share[0], "fraction"),
        "share_low": (cells, share[1], "fraction"),
        "share_high": (cells, share[2], "fraction"),
        "unchanged": (("condition", "group"), unchanged, "fraction"),
        "label": (("example",), found.labels, "text"),
    }
    return build(variables, {"condition": list(CONDITIONS), "group": groups, "kind": kinds}, attrs)
