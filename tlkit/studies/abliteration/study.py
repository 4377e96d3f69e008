"""`tk.abliteration.run`: find a behaviour's direction, and say what removing it does."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tlkit.errors import SpecError
from tlkit.models.bridge import Parts
from tlkit.models.streamed import need_memory
from tlkit.models.writers import norms_between, writes
from tlkit.prompts.prompts import Prompts
from tlkit.results.provenance import provenance
from tlkit.results.schema import build
from tlkit.spec.directions import Direction
from tlkit.studies.abliteration.bake import bake
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
from tlkit.studies.abliteration.projection import strengths_of
from tlkit.studies.abliteration.settings import Settings, settings_of
from tlkit.studies.behaviour import Detector, checked, classify

Stages = Callable[[str], Callable[[int, int], None]]


def run(
    model: Any, harmful: Any, harmless: Any, *, stages: Stages | None = None, **choices: Any
) -> Any:
    """Find, choose and measure the direction of a behaviour such as refusal.

    Method: Arditi et al. 2024 (arXiv:2406.11717); see docs/studies/abliteration.md. Directions are
    found and chosen on one part of the prompts; what is reported comes from the other. The model's
    weights are as before afterwards; `bake` takes the result.

    Args:
        model: A loaded model that shows the behaviour.
        harmful: Prompts that show it: texts, rows with ``prompt``, or `tk.Prompts`.
        harmless: Prompts that do not.
        stages: Given a label, returns a function of (done, total).
        **choices: The fields of `Settings`.

    Returns:
        An xarray Dataset. ``candidate_score`` (log-odds of a refusing start on harmful prompts),
        ``kl`` (first answer token, harmless prompts) and ``refusal`` (share of refusals among
        answers; NaN where none were written), each (layer, pos), and ``refusal_before``.
        ``refusal_rate``, ``refusal_low``, ``refusal_high`` (model, detector; Wilson 95 %) on
        harmful held-out prompts, ``share`` (model, detector, kind), ``disagreement`` (model), and
        the same as ``harmless_…``: models ``original``, ``abliterated``, ``random direction``.
        ``answer_kl`` (model, step, harmless) along the original's answers, ``loss`` (model,
        harmless) of the prompts' own text, ``direction`` (rank, d_model), and the answers. The
        choice, and how far baked weights are from hooks, are in ``attrs``.

    Raises:
        SpecError: The request cannot be carried out, or the model does not show the behaviour.
    """
    started = time.perf_counter()
    s = _settings(model, choices)
    parts, say = Parts(model), stages or (lambda _label: lambda _done, _total: None)
    strengths_of(s.weights, parts.n_layers)
    exact = not norms_between(writes(parts))
    kinds = ("harmful", "harmless")
    whole = [as_prompts(model, given, kind, chat=s.chat)
             for given, kind in zip((harmful, harmless), kinds, strict=True)]  # fmt: skip
    (bad, bad_test), (good, good_test) = (
        split(prompts, s.held_out, s.seed, kind) for prompts, kind in zip(whole, kinds, strict=True)
    )
    found = directions(
        model, bad, good, layers=s.layers, positions=s.positions, site=s.site, rank=s.rank,
        progress=say("directions"),
    )  # fmt: skip
    named = checked(s.detectors)
    write = Writer(model, whole[0].chat, s.max_new_tokens)
    bench, refused = _bench(model, bad, good, s, named, write)
    key, table = choose(bench, found, s.most, s.max_kl, s.generate, say("candidates"))
    control = random_direction(parts.d_model, s.rank, s.seed)
    measured = evaluate(
        model, bad_test, good_test, (found[key], control), s.weights, named, bench.prefixes,
        write, say("held-out prompts"),
    )  # fmt: skip
    attrs = {
        **_request(model, whole, s), **_choice(key, table, s, bench, control),
        **_baked(model, found[key], s, bad_test, exact=exact),
        "seconds": round(time.perf_counter() - started, 3),
    }  # fmt: skip
    return _dataset(found, key, table, measured, refused, attrs)


def _settings(model: Any, choices: Mapping[str, Any]) -> Settings:
    """The study's choices, of a model whose weights can be baked."""
    need_memory(model, "A study that bakes", "use directions() and projected()")
    return settings_of(choices)


def _bench(
    model: Any, bad: Prompts, good: Prompts, s: Settings, named: Mapping[str, Detector],
    write: Writer,
) -> tuple[Bench, list[bool]]:  # fmt: skip
    """Where candidates are tried, and which harmful prompts the unchanged model refuses."""
    answers, texts = write(bad)
    name, first = next(iter(named.items()))
    refused = [classify(text, first) == "refusal" for text in texts]
    _check_shown(refused, name)
    starts = prefixes_of(model, s.prefixes, answers, refused, chat=write.chat)
    return Bench(model, bad, good, starts, s.weights, write, first), refused


def _check_shown(refused: Sequence[bool], detector: str) -> None:
    if not any(refused):
        raise SpecError(
            f"By the detector {detector!r} this model refuses none of {len(refused)} harmful "
            f"prompts, so there is no refusal to remove; choose a model that refuses, other "
            f"prompts, or a detector of the behaviour you mean."
        )


def _request(model: Any, whole: Sequence[Prompts], s: Settings) -> dict[str, Any]:
    return provenance(
        model, study="abliteration", seed=s.seed, site=s.site, rank=s.rank, max_kl=s.max_kl,
        most=s.most, held_out=s.held_out, max_new_tokens=s.max_new_tokens,
        harmful=len(whole[0]), harmless=len(whole[1]),
        harmful_hash=whole[0].hash(), harmless_hash=whole[1].hash(),
        strengths=json.dumps(strengths_of(s.weights, Parts(model).n_layers)),
    )  # fmt: skip


def _choice(
    key: Key, table: Mapping[Key, Scored], s: Settings, bench: Bench, control: Direction
) -> dict[str, Any]:
    """The chosen candidate in words and numbers, beside a random direction."""
    one, other = table[key], bench.score(control)
    within, removed = one.kl <= s.max_kl, one.rate + one.failed <= s.most
    said = f"layer {key[0]}, position {key[1]}: KL {one.kl:.3g}, refusals {one.rate:.2f}"
    if not removed:
        said += f"; no candidate left at most {s.most:g} of refusals, empty and garbled answers"
    if not within:
        said += f"; over the limit of KL {s.max_kl:g}, because no candidate within it did as much"
    starts = [bench.model.tokenizer.decode(list(one)) for one in bench.prefixes]
    return {
        "prefixes": json.dumps(starts), "layer": key[0], "pos": key[1], "choice": said,
        "within_limit": within, "removed": removed, "random_score": other.score,
        "random_kl": other.kl,
    }  # fmt: skip


def _baked(
    model: Any, direction: Direction, s: Settings, prompts: Prompts, *, exact: bool
) -> dict[str, Any]:
    """How far the baked weights are from the hooks, and why if they cannot be."""
    if not exact and not s.approximate:
        return {"bake": "not exact on this model: a norm stands before the stream"}
    with bake(
        model, direction, per_layer=s.weights, approximate=s.approximate, probe=prompts.clean
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
    axes = ("rank", "d_model", "step", "harmful", "harmless")
    return build(variables, labels, attrs, axes=axes)
