"""Work that is done piece by piece: the map, and what follows a click.

Each is an iterator of replies. Whoever holds one asks for the next piece, or drops it: that is how
a newer request cancels an older one, without a thread.
"""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from tlkit.app.bench import Bench
from tlkit.app.screen import number
from tlkit.app.state import METRICS, State, width_of
from tlkit.engine.generating import generated
from tlkit.engine.patterns import patterns, patterns_under
from tlkit.errors import SpecError
from tlkit.models.bridge import Parts
from tlkit.spec.sweeps import Condition
from tlkit.studies import patching

PIECE_SECONDS = 0.06
"""About how long a piece of the map may take: a click waits for the piece before it."""
NEW_TOKENS = 8
"""How far the continuation goes."""

Cell = tuple[int, int]
Reply = dict[str, Any]


def map_pieces(model: Any, state: State, bench: Bench, known: dict[Cell, float]) -> Iterator[Reply]:
    """The map's effects: what is known, estimates of the rest, then exact ones.

    Args:
        model: The model.
        state: What the map shows.
        bench: Measures its cells.
        known: Values of cells that were run; what is run here is added to it.
    """
    parts = Parts(model)
    base = bench.baseline()
    cells = [(k, at) for k in range(parts.n_layers) for at in range(width_of(parts, state))]
    new = [cell for cell in cells if cell not in known]
    known.update((cell, base) for cell in new if bench.idle(state.cell(*cell)))
    todo = [cell for cell in cells if cell not in known]
    if len(todo) < len(cells):
        done = [cell for cell in cells if cell in known]
        yield _map(done, [known[cell] - base for cell in done], exact=True)
    if not todo:
        return
    estimate = _estimate(model, state)
    if estimate is not None:
        yield _map(todo, [float(estimate[cell]) for cell in todo], exact=False)
        todo.sort(key=lambda cell: -abs(np.nan_to_num(estimate[cell])))
    bench.warm(state.cell(0, width_of(parts, state) - 1))
    size = 1
    while todo:
        some, todo = todo[:size], todo[size:]
        started = time.perf_counter()
        values = bench.cells([state.cell(*cell) for cell in some])
        known.update(zip(some, values.tolist(), strict=True))
        yield _map(some, (values - base).tolist(), exact=True)
        pace = PIECE_SECONDS / max(time.perf_counter() - started, 1e-6)
        size = max(1, int(len(some) * min(pace, 4)))


def _map(cells: list[Cell], effects: list[float], *, exact: bool) -> Reply:
    return {
        "kind": "map",
        "cells": [[layer, at, number(e)] for (layer, at), e in zip(cells, effects, strict=True)],
        "exact": exact,
    }


def _estimate(model: Any, state: State) -> np.ndarray | None:
    """Every cell's effect from one backward pass, ``[layer, pos or head]``; None if there is none.

    KL has no slope at the base run, some metrics have no gradient.
    """
    try:
        found = patching.run(
            model, state.prompts, state.site, METRICS[state.metric](),
            by="heads" if state.axis == "head" else "positions", on=state.base, engine="gradient",
        )  # fmt: skip
    except SpecError:
        return None
    return found["effect"].values[0, :, :, 0]


def after_pieces(model: Any, state: State, bench: Bench) -> Iterator[Reply]:
    """What follows the numbers: attention, then the continuation word by word."""
    layer = layer_of(state)
    if layer is not None:
        yield _attention(model, state, layer)
    for side, condition in (("after", state.condition), ("before", Condition("base"))):
        yield from _continuation(model, state, side, condition, bench.continuations)


def _attention(model: Any, state: State, layer: int) -> Reply:
    """Each head's weights of one query, before and after."""
    ids = state.prompts.ids(state.base)[0]
    query = query_of(state)
    old = patterns(model, ids, [layer])[layer]
    new = patterns_under(model, state.prompts, state.condition, [layer], on=state.base)[layer]
    return {
        "kind": "attention",
        "layer": layer,
        "query": query,
        "before": old[:, query, : query + 1].tolist(),
        "after": new[:, query, : query + 1].tolist(),
    }


def query_of(state: State) -> int:
    """The position whose attention is shown: the last change's, or the prompt's last."""
    last = len(state.prompts.ids(state.base)[0]) - 1
    for change in reversed(state.changes):
        asked = getattr(change, "queries", None)
        if asked is None:
            asked = getattr(getattr(change, "site", None), "pos", None)
        first = asked[0] if isinstance(asked, tuple) and asked else asked
        if isinstance(first, int):
            return first % (last + 1)
    return last


def layer_of(state: State) -> int | None:
    """The last change's layer, if it has one."""
    for change in reversed(state.changes):
        asked = getattr(change, "layers", None)
        if asked is None:
            asked = getattr(getattr(change, "site", None), "layer", None)
        first = asked[0] if isinstance(asked, tuple) and asked else asked
        if isinstance(first, int):
            return first
    return None


def _continuation(
    model: Any, state: State, side: str, condition: Condition, kept: dict[str, str]
) -> Iterator[Reply]:
    """The text so far, after each new token; that of the unchanged run is kept."""
    key = side if side == "before" else ""
    if key in kept:
        yield {"kind": "text", "side": side, "text": kept[key], "done": True}
        return
    tokenizer, ids, text = getattr(model, "tokenizer", None), [], ""
    room = Parts(model).context - len(state.prompts.ids(state.base)[0])
    for _, token in generated(
        model, state.prompts, condition, max_new_tokens=min(NEW_TOKENS, room), on=state.base
    ):
        ids.append(token)
        text = tokenizer.decode(ids) if tokenizer is not None else " ".join(map(str, ids))
        yield {"kind": "text", "side": side, "text": text, "done": False}
    if key:
        kept[key] = text
    yield {"kind": "text", "side": side, "text": text, "done": True}
