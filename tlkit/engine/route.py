"""Which way a model is run, found by trying it: packed where it provably agrees, else the twin."""

import weakref
from dataclasses import dataclass
from typing import Any

import torch

from tlkit.engine.readout import logits_of
from tlkit.engine.record import record
from tlkit.models.bridge import Parts, foreign_hooks, unbridged


@dataclass(frozen=True)
class Route:
    """How a model is served, and why not packed where it is not."""

    packed: bool
    reason: str = ""


_routes: "weakref.WeakKeyDictionary[Any, Route]" = weakref.WeakKeyDictionary()


def route_of(parts: Parts) -> Route:
    """The route for a model as it is now.

    Attention must come by once a layer, and logits made from the recorded streams must equal the
    model's own; hooks that somebody has put on the model need the reference engine, which runs
    them. What was found is remembered for as long as the model lives.
    """
    hook = foreign_hooks(parts.bridge)
    if hook is not None:
        return Route(False, f"the model carries a hook of yours at {hook}")
    if parts.bridge not in _routes:
        _routes[parts.bridge] = _try_out(parts)
    return _routes[parts.bridge]


def _try_out(parts: Parts) -> Route:
    ids = [[1, 2, 3, 4, 5, 6], [7, 8, 9]]
    try:
        run = record(parts, ids)
        with torch.no_grad(), unbridged(parts.bridge) as hf:
            for i, row in enumerate(ids):
                plain = hf(torch.tensor(row, device=parts.device)[None], use_cache=False).logits[0]
                ours = logits_of(parts, run.stream[-1][i, : len(row)], None)
                gap = float((ours - plain.float()).abs().max())
                scale = float(plain.float().abs().max())
                tolerance = 1e-4 if parts.dtype == torch.float32 else 5e-2
                if not gap <= tolerance * max(scale, 1.0):
                    return Route(False, f"recorded streams give logits that are off by {gap:.2g}")
    except Exception as error:
        why = str(error).rstrip(".") or type(error).__name__
        return Route(False, f"its blocks cannot be called on packed tokens ({why})")
    return Route(True)
