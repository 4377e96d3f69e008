"""Which way a model is run, found by trying it: packed where it provably agrees, else the twin."""

import weakref
from dataclasses import dataclass
from typing import Any

import torch

from tlkit.engine.readout import logits_of
from tlkit.engine.record import Run, padded, record
from tlkit.engine.together import Recording, together
from tlkit.errors import SpecError
from tlkit.models.bridge import Parts, unbridged
from tlkit.models.foreign import foreign_hooks


@dataclass(frozen=True)
class Route:
    """How a model is served, and why not packed where it is not.

    Attributes:
        packed: Whether the packed engine serves it.
        reason: Why not.
        outputs: Of a model whose blocks come from disk and can be called one by one (see
            `tlkit.engine.together`): 0 where they return the stream, n where a tuple of n.
    """

    packed: bool
    reason: str = ""
    outputs: int | None = None


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
        in_step = _try_in_step(parts) if parts.streamed else None
        _routes[parts.bridge] = in_step or _try_out(parts)
    return _routes[parts.bridge]


_IDS = [[1, 2, 3, 4, 5, 6], [7, 8, 9]]


def _try_out(parts: Parts) -> Route:
    try:
        run = record(parts, _IDS)
        with torch.no_grad(), unbridged(parts.bridge) as hf:
            for i, row in enumerate(_IDS):
                plain = hf(torch.tensor(row, device=parts.device)[None], use_cache=False).logits[0]
                gap = _gap(parts, run, i, plain)
                if gap is not None:
                    return Route(False, f"recorded streams give logits that are off by {gap:.2g}")
    except Exception as error:
        why = str(error).rstrip(".") or type(error).__name__
        return Route(False, f"its blocks cannot be called on packed tokens ({why})")
    return Route(True)


def _try_in_step(parts: Parts) -> Route | None:
    """The same for a model on disk, in two passes over its weights; None where that fails."""
    tokens, mask = padded(_IDS, parts.device)
    seen: list[int] = []

    def look(module: Any, args: Any, out: Any) -> None:
        seen.append(0 if torch.is_tensor(out) else len(out))

    handle = parts.blocks[0].register_forward_hook(look)
    try:
        with torch.no_grad(), unbridged(parts.bridge) as hf:
            plain = hf(tokens, attention_mask=mask, use_cache=False).logits
        handle.remove()
        recording = Recording(parts, _IDS, set(), seen[0])
        together(parts, [recording])
        gaps = [_gap(parts, recording.run, i, plain[i, : len(row)]) for i, row in enumerate(_IDS)]
    except Exception as error:
        memory = isinstance(error, MemoryError) or "allocate memory" in str(error)
        if memory or isinstance(error, SpecError):
            raise  # says nothing of the model, and the other ways take no less
        return None
    finally:
        handle.remove()
    return Route(True, outputs=seen[0]) if gaps == [None, None] else None


def _gap(parts: Parts, run: Run, example: int, plain: torch.Tensor) -> float | None:
    """By how much logits from a recorded stream are off, if by more than rounding."""
    ours = logits_of(parts, run.stream[-1][example, : len(plain)], None)
    gap = float((ours - plain.float()).abs().max())
    scale = float(plain.float().abs().max())
    tolerance = 1e-4 if parts.dtype == torch.float32 else 5e-2
    return None if gap <= tolerance * max(scale, 1.0) else gap
