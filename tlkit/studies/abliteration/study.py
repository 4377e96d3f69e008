"""`tk.abliteration.run`: find a behaviour's direction, choose where, and say what removing it does.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tlkit.errors import SpecError
from tlkit.models.bridge import Parts
from tlkit.models.writers import norms_between, writes
from tlkit.prompts.prompts import Prompts
from tlkit.results.provenance import provenance
from tlkit.results.schema import build
from tlkit.spec.directions import Direction
from tlkit.studies.abliteration.bake import bake
from tlkit.studies.abliteration.behaviour import Detector, checked, classify
from tlkit.studies.abliteration.candidates import (
    Bench,
    Key,
    Scored,
    Writer,
    choose,
    prefixes_of,
    random_direction,
)
from tlkit.studies.abliteration.directions import Directions, directions
from tlkit.studies.abliteration.evaluate import MODELS, Evaluated, evaluate
from tlkit.studies.abliteration.inputs import as_prompts, split
from tlkit.studies.abliteration.projection import Strengths, strengths_of

Stages = Callable[[str], Callable[[int, int], None]]


def run(
    model: Any,
    harmful: Any,
    harmless: Any,
    *,
    layers: Iterable[int] | None = None,
    positions: Iterable[int] = (-1,),
    site: str = "resid_pre",
    rank: int = 1,
    chat: bool = True,
    detectors: Mapping[str, Detector] | None = None,
    prefixes: Sequence[str] | None = None,
    weights: Strengths = None,
    max_kl: float = 0.1,
    most: float = 0.1,
    generate: int = 5,
    held_out: float = 0.3,
    max_new_tokens: int = 32,
    approximate: bool = False,
    seed: int = 0,
    stages: Stages | None = None,
) -> Any:
    """Find, choose and measure the direction of a behaviour such as refusal.

    Method: Arditi et al. 2024 (arXiv:2406.11717); see docs/studies/abliteration.md. Directions are
    found and chosen on one part of the prompts; what is reported comes from the other. The model's
    weights are as before afterwards; `bake` takes the result.

    Args:
        model: A loaded model that shows the behaviour.
        harmful: Prompts that show it: texts, rows with ``prompt``, or `tk.Prompts`.
        harmless: Prompts that do not.
        layers, positions, site, rank, chat: As `directions` takes them.
        detectors: Names to functions of an answer that say whether it shows the behaviour;
            refusal phrases if None. The first one decides.
        prefixes: How refusals start; the starts of the model's own most frequent ones if None.
        weights: Strength by layer (see `strengths_of`).
        max_kl: Candidates that change the first token on harmless prompts by more (nats) are taken
            only where no other removes the behaviour.
        most: Share of refusals up to which the behaviour counts as removed.
        generate: How many of the best candidates write answers.
        held_out: Share of the prompts that are only reported on.
        max_new_tokens: Length of answers.
        approximate: Whether a bake is tried where norms make it inexact (see `bake`).
        seed: Draws the held-out prompts and the random control.
        stages: Given a label, returns a function of (done, total).

    Returns:
        An xarray Dataset. ``candidate_score`` (log-odds of a refusing start on harmful prompts),
        ``kl`` (first answer token, harmless prompts) and ``refusal`` (share of refusals among
        answers; NaN where none were written), each (layer, pos), and ``refusal_before``.
        ``refusal_rate``, ``refusal_low``, ``refusal_high`` (model, detector; Wilson 95 %) on
        harmful held-out prompts, ``harmless_refusal_rate`` likewise, ``share`` (model, detector,
        kind), ``disagreement`` (model): models ``original``, ``abliterated`` and ``random
        direction``. ``answer_kl`` (model, token, harmless) along the original's answers, ``loss``
        (model, harmless) of the prompts' own text, ``direction`` (rank, d_model), and the answers
        themselves. The choice, and how far baked weights are from hooks, are in ``attrs``.

    Raises:
        SpecError: The request cannot be carried out, or the model does not show the behaviour.
    """
    started = time.perf_counter()
    named = checked(detectors)
    _check(max_kl, most, generate, held_out, max_new_tokens)
    parts = Parts(model)
    strengths_of(weights, parts.n_layers)
    exact = not norms_between(writes(parts))
    whole = [as_prompts(model, given, kind, chat=chat)
             for given, kind in ((harmful, "harmful"), (harmless, "harmless"))]  # fmt: skip
    (bad, bad_test), (good, good_test) = (
        split(prompts, held_out, seed, kind)
        for prompts, kind in zip(whole, ("harmful", "harmless"), strict=True)
    )
    say = stages or (lambda _label: lambda _done, _total: None)
    found = directions(
        model, bad, good, layers=layers, positions=positions, site=site, rank=rank,
        progress=say("directions"),
    )  # fmt: skip
    first = next(iter(named.values()))
    write = Writer(model, whole[0].chat, max_new_tokens)
    answers, texts = write(bad)
    refused = [classify(text, first) == "refusal" for text in texts]
    _check_shown(refused, next(iter(named)))
    starts = prefixes_of(model, prefixes, answers, refused, chat=whole[0].chat)
    bench = Bench(model, bad, good, starts, weights, write, first)
    key, table = choose(bench, found, most, max_kl, generate, say("candidates"))
    control = random_direction(parts.d_model, rank, seed)
    measured = evaluate(
        model, bad_test, good_test, (found[key], control), weights, named, starts, write,
        say("held-out prompts"),
    )  # fmt: skip
    attrs = {
        **_request(model, whole, site, rank, seed, max_kl, most, held_out, max_new_tokens, weights),
        **_choice(key, table, max_kl, most, bench, control),
        **_baked(model, found[key], weights, bad_test, exact=exact, approximate=approximate),
        "prefixes": json.dumps([model.tokenizer.decode(list(one)) for one in starts]),
        "seconds": round(time.perf_counter() - started, 3),
    }
    return _dataset(found, key, table, measured, refused, attrs)


def _check(max_kl: float, most: float, generate: int, held_out: float, tokens: int) -> None:
    """Refuse what needs no model to be refused."""
    for name, value in (("most", most), ("held_out", held_out)):
        if not 0 < value < 1:
            raise SpecError(f"{name} is a share between 0 and 1, not {value}.")
    if not max_kl > 0 or generate < 1 or tokens < 1:
        raise SpecError("max_kl, generate and max_new_tokens must be above 0.")


def _check_shown(refused: Sequence[bool], detector: str) -> None:
    if not any(refused):
        raise SpecError(
            f"By the detector {detector!r} this model refuses none of {len(refused)} harmful "
            f"prompts, so there is no refusal to remove; choose a model that refuses, other "
            f"prompts, or a detector of the behaviour you mean."
        )


def _request(
    model: Any, whole: Sequence[Prompts], site: str, rank: int, seed: int, max_kl: float,
    most: float, held_out: float, tokens: int, weights: Strengths,
) -> dict[str, Any]:  # fmt: skip
    return provenance(
        model, study="abliteration", seed=seed, site=site, rank=rank, max_kl=max_kl, most=most,
        held_out=held_out, max_new_tokens=tokens, harmful=len(whole[0]), harmless=len(whole[1]),
        harmful_hash=whole[0].hash(), harmless_hash=whole[1].hash(),
        strengths=json.dumps(strengths_of(weights, Parts(model).n_layers)),
    )  # fmt: skip


def _choice(
    key: Key, table: Mapping[Key, Scored], max_kl: float, most: float, bench: Bench,
    control: Direction,
) -> dict[str, Any]:  # fmt: skip
    """The chosen candidate in words and numbers, beside a random direction."""
    one, other = table[key], bench.score(control)
    within, removed = one.kl <= max_kl, one.rate + one.failed <= most
    said = f"layer {key[0]}, position {key[1]}: KL {one.kl:.3g}, refusals {one.rate:.2f}"
    if not removed:
        said += f"; no candidate left at most {most:g} of refusals, empty and garbled answers"
    if not within:
        said += f"; over the limit of KL {max_kl:g}, because no candidate within it did as much"
    return {
        "layer": key[0], "pos": key[1], "choice": said, "within_limit": within, "removed": removed,
        "random_score": other.score, "random_kl": other.kl,
    }  # fmt: skip


def _baked(
    model: Any, direction: Direction, weights: Strengths, prompts: Prompts, *, exact: bool,
    approximate: bool,
) -> dict[str, Any]:  # fmt: skip
    """How far the baked weights are from the hooks, and why if they cannot be."""
    if not exact and not approximate:
        return {"bake": "not exact on this model: a norm stands before the stream"}
    with bake(
        model, direction, per_layer=weights, approximate=approximate, probe=prompts.clean
    ) as one:
        return {
            "bake": "approximate" if one.approximate else "exact",
            "bake_difference": one.difference, "bake_tensors": one.tensors,
            **({} if one.approximate else {"bake_tolerance": one.tolerance}),
        }  # fmt: skip


def _dataset(
    found: Directions, key: Key, table: Mapping[Key, Scored], measured: Evaluated,
    refused: Sequence[bool], attrs: Mapping[str, Any],
) -> Any:  # fmt: skip
    import numpy as np

    layers, at = (found.dataset[name].values.tolist() for name in ("layer", "pos"))
    grids = {name: np.full((len(layers), len(at)), np.nan) for name in ("score", "kl", "rate")}
    for (layer, pos), one in table.items():
        for name, grid in grids.items():
            grid[layers.index(layer), at.index(pos)] = getattr(one, name)
    variables = {
        "candidate_score": (("layer", "pos"), grids["score"], "log-odds"),
        "kl": (("layer", "pos"), grids["kl"]),
        "refusal": (("layer", "pos"), grids["rate"], "fraction"),
        "refusal_before": ((), np.mean(refused), "fraction"),
        "direction": (("rank", "d_model"), found[key].vector.numpy(), "unit vector"),
        **measured.variables,
    }
    labels = {"layer": layers, "pos": at, "model": list(MODELS), **measured.labels}
    axes = ("rank", "d_model", "token", "harmful", "harmless")
    return build(variables, labels, attrs, axes=axes)
