"""`tk.capture`: activations at named positions, unchanged or under a condition, as a dataset."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from torch import Tensor

from tlkit.engine.budget import bytes_of
from tlkit.engine.edits import Compiler, Worked
from tlkit.engine.refusals import check_prompts
from tlkit.engine.route import route_of
from tlkit.engine.sequences import Sequences
from tlkit.engine.sources import Place
from tlkit.engine.states import States, states
from tlkit.engine.values import Progress
from tlkit.errors import SpecError
from tlkit.models.bridge import Parts
from tlkit.results.provenance import provenance
from tlkit.results.schema import build
from tlkit.spec.sites import EDGES, HEADS, NEURONS, Site, positions
from tlkit.spec.sweeps import Condition

_FEATURES = ("d_model", "d_head", "d_mlp")


def capture(
    model: Any,
    prompts: Any,
    sites: Site | Sequence[Site] | Mapping[str, Site],
    condition: Condition | None = None,
    *,
    on: Literal["clean", "corrupted"] = "clean",
    engine: str = "packed",
    budget: int | str | None = None,
    progress: Progress | None = None,
) -> Any:
    """Read activations at sites, on every prompt.

    Args:
        model: A loaded model.
        prompts: `tk.Prompts`.
        sites: What to read: sites narrowed by ``pos`` (a position, a span's name, ``"end"``) and,
            if wanted, by ``layer`` and ``head``; or a mapping of names to sites. Patterns and
            scores have no ``pos`` and cannot be read here.
        condition: What is changed while they are read; nothing if None. An intervention on the
            very site that is read is seen.
        on: Which run is read.
        engine: ``"packed"``; or ``"reference"``, one hooked forward pass for each prompt.
        budget: Memory that may be taken besides the weights: bytes, or text such as ``"4GiB"``.
        progress: Called with (prompts done, prompts in all).

    Returns:
        An xarray Dataset with one float32 variable per site, ``[layer, example, pos, …]`` and
        then ``d_model``, ``d_mlp``, or ``head`` (``kv_head``) and ``d_head``. ``pos`` is the
        place within the span; it is left out where each site has one position by its spec, and
        NaN where an example has fewer. NaN where a condition does not apply to an example.

    Raises:
        SpecError: A site or condition is not of this model or these prompts.
    """
    started = time.perf_counter()
    named = _named(sites)
    if engine not in ("packed", "reference"):
        raise SpecError(f"There is no engine {engine!r}; the engines are packed, reference.")
    check_prompts(model, prompts)
    parts, sequences = Parts(model), Sequences(prompts, on)
    sequences.require(on)
    places = {name: _places(site, parts) for name, site in named.items()}
    conditions = {} if condition is None else {"changed": _worked(condition, parts, sequences)}
    packed = engine == "packed" and route_of(parts).packed
    where = {name: _positions(site, sequences) for name, site in named.items()}
    each = zip(*where.values(), strict=True)
    union = [tuple(sorted({p for some in sets for p in some})) for sets in each]
    found = states(
        parts, sequences, union, sorted({p for some in places.values() for p in some}), conditions,
        packed=packed, budget=bytes_of(budget), progress=progress,
    )["changed" if conditions else "base"]  # fmt: skip
    attrs = provenance(
        model, prompts, engine="packed" if packed else "reference", study="capture", on=on,
        condition=condition.name if condition else "",
        sites=", ".join(f"{name}: {site}" for name, site in named.items()),
        seconds=round(time.perf_counter() - started, 3),
    )  # fmt: skip
    return _dataset(named, places, where, union, found, attrs)


def _dataset(
    named: Mapping[str, Site], places: Mapping[str, Sequence[Place]],
    where: Mapping[str, Sequence[tuple[int, ...]]], union: Sequence[tuple[int, ...]],
    found: States, attrs: dict[str, Any],
) -> Any:  # fmt: skip
    """One variable per site, all of the same layers and positions."""
    layers = sorted({layer for some in places.values() for _, layer in some})
    single = all(_single(site) for site in named.values())
    arrays = {
        name: _values(site, places[name], layers, found, union, where[name])
        for name, site in named.items()
    }
    width = max(values.shape[2] for values in arrays.values())
    variables = {}
    for name, site in named.items():
        dims = ("layer", "example", *(() if single else ("pos",)), *_feature_dims(site))
        values = arrays[name][:, :, 0] if single else _widened(arrays[name], width)
        variables[name] = (dims, values, "activation")
    return build(variables, {"layer": layers}, attrs, axes=_FEATURES)


def _named(sites: Site | Sequence[Site] | Mapping[str, Site]) -> dict[str, Site]:
    """Sites by the name that their variable gets.

    Raises:
        SpecError: There are none, two have one name, or one has no positions.
    """
    if isinstance(sites, Mapping):
        named = dict(sites)
    else:
        several = [sites] if isinstance(sites, Site) else list(sites)
        named = {site.component: site for site in several}
        if len(named) < len(several):
            raise SpecError("Two sites are of one component; give a mapping of names to sites.")
    if not named:
        raise SpecError("capture needs a site to read, such as tk.Site('resid_post', pos='end').")
    for site in named.values():
        if site.component in EDGES:
            raise SpecError(f"capture reads sites with positions, and {site.component!r} has none.")
    return named


def _single(site: Site) -> bool:
    """Whether a site's own spec gives each prompt one position."""
    return isinstance(site.pos, int) or site.pos == "end" or (
        isinstance(site.pos, tuple) and len(site.pos) == 1
    )  # fmt: skip


def _positions(site: Site, sequences: Sequences) -> list[tuple[int, ...]]:
    spans = sequences.spans(sequences.base)
    lengths = [len(ids) for ids in sequences.runs[sequences.base]]
    return [positions(site.pos, length, spans, i) for i, length in enumerate(lengths)]


def _places(site: Site, parts: Parts) -> list[Place]:
    """A site's layers, each checked against the model."""
    reason = parts.unsupported(site.component)
    if reason:
        raise SpecError(f"{parts.name} has no site {site.component!r}: {reason}.")
    heads = parts.n_kv_heads if site.head_dimension == "kv_head" else parts.n_heads
    for value, size, what in ((site.layer, parts.n_layers, "layer"), (site.head, heads, "head")):
        if value is not None and not 0 <= value < size:
            raise SpecError(f"{site}: this model has {what}s 0 to {size - 1}.")
    if site.component == "embed":
        return [("embed", 0)]
    layers = range(parts.n_layers) if site.layer is None else [site.layer]
    return [(site.component, layer) for layer in layers]


def _worked(condition: Condition, parts: Parts, sequences: Sequences) -> list[Worked]:
    compiler = Compiler(sequences, parts.n_layers, parts.n_heads, parts.n_kv_heads)
    return [compiler.work_out(condition, i) for i in range(len(sequences.prompts))]


def _feature_dims(site: Site) -> tuple[str, ...]:
    if site.component in HEADS:
        return ("d_head",) if site.head is not None else (site.head_dimension, "d_head")
    return ("d_mlp",) if site.component in NEURONS else ("d_model",)


def _values(
    site: Site, places: Sequence[Place], layers: Sequence[int], found: States,
    union: Sequence[tuple[int, ...]], where: Sequence[tuple[int, ...]],
) -> np.ndarray:  # fmt: skip
    """``[layer, example, pos, …]`` of one site, NaN where there is nothing."""
    rows = {place: [_narrowed(site, row) for row in found[place]] for place in places}
    features = rows[places[0]][0].shape[1:]
    width = max(1, *(len(some) for some in where))
    out = np.full((len(layers), len(where), width, *features), np.nan, dtype=np.float32)
    for place, several in rows.items():
        at = layers.index(place[1])
        for example, wanted in enumerate(where):
            index = [union[example].index(p) for p in wanted]
            if index:
                out[at, example, : len(index)] = several[example][index].float().cpu().numpy()
    return out


def _narrowed(site: Site, rows: Tensor) -> Tensor:
    return rows if site.head is None else rows[:, site.head]


def _widened(values: np.ndarray, width: int) -> np.ndarray:
    """With as many positions as the widest site has, NaN in those that are new."""
    more = [(0, 0)] * values.ndim
    more[2] = (0, width - values.shape[2])
    return np.pad(values, more, constant_values=np.nan)
