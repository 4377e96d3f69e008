"""One forward pass of TransformerLens's bridge under plain hooks, and what it shows."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tlkit.engine.sources import Captured, Place
from tlkit.errors import EngineError, SpecError
from tlkit.models.bridge import Parts
from tlkit.models.streamed import release

Hooks = dict[str, list[Callable[..., Any]]]
"""Functions of an activation and a name, by TransformerLens's name of the hook point."""

_INSIDE_ATTENTION = ("z", "q", "k", "v", "pattern", "attn_scores")


def hook_name(component: str, layer: int) -> str:
    """TransformerLens's name of a site."""
    if component == "embed":
        return "embed.hook_out"
    if component in _INSIDE_ATTENTION:
        return f"blocks.{layer}.attn.hook_{component}"
    if component in ("mlp_pre", "mlp_post"):
        return f"blocks.{layer}.mlp.hook_{component[4:]}"
    return f"blocks.{layer}.hook_{component}"


def capture(parts: Parts, ids: list[list[int]], places: set[Place]) -> Captured:
    """Activations per place, one tensor per example, each example run alone."""
    found = [seen_sites(parts, row, places, {}) for row in ids]
    return {place: [one[place] for one in found] for place in places}


def seen_sites(
    parts: Parts, ids: list[int], places: Iterable[Place], hooks: Hooks
) -> dict[Place, Tensor]:
    """Activations ``[pos, ...]`` of one sequence under hooks, as the hooks leave them."""
    seen: dict[str, Tensor] = {}
    keep = partial(keep_value, seen)
    needed: dict[Place, list[str]] = {}
    for component, layer in places:
        refuse(parts, component)
        sums = ("resid_pre", "attn_out") if component == "resid_mid" else (component,)
        needed[component, layer] = [hook_name(one, layer) for one in sums]
    names = {name for several in needed.values() for name in several}
    both = {name: [*hooks.get(name, []), *([keep] if name in names else [])]
            for name in [*hooks, *(names - set(hooks))]}  # fmt: skip
    run_hooked(parts, ids, both)
    return {
        place: headed(parts, place[0], torch.stack([seen[name] for name in several]).sum(0))
        for place, several in needed.items()
    }


def headed(parts: Parts, component: str, value: Tensor) -> Tensor:
    """q, k, v and z with their axis of heads."""
    if component in ("q", "z", "k", "v") and value.ndim == 2:
        heads = parts.n_kv_heads if component in ("k", "v") else parts.n_heads
        return value.unflatten(-1, (heads, -1))
    return value


def refuse(parts: Parts, component: str) -> None:
    """Refuse a site that this model does not have.

    Raises:
        SpecError: With the reason.
    """
    reason = parts.unsupported(component)
    if reason:
        raise SpecError(f"{parts.name} has no site {component!r}: {reason}.")


def keep_value(seen: dict[str, Tensor], value: Tensor, name: str) -> None:
    """A hook that keeps an activation ``[pos, ...]`` by the name of its hook point."""
    seen[name] = value[0].detach().clone()


def run_hooked(parts: Parts, ids: list[int], hooks: Hooks) -> Tensor:
    """Logits ``[pos, vocab]``, float32, of one sequence under hooks, all of which must fire.

    Raises:
        EngineError: A hook did not.
    """
    fired: set[str] = set()
    points = [(name, partial(_fire, fired, name, several)) for name, several in hooks.items()]
    tokens = torch.tensor(ids, device=parts.device)[None]
    try:
        with torch.no_grad():
            logits = parts.bridge.run_with_hooks(tokens, fwd_hooks=points)
    finally:
        release(parts.bridge)
    silent = sorted(set(hooks) - fired)
    if silent:
        raise EngineError(f"{parts.name}: the hook {silent[0]} never fired, so nothing was done.")
    return logits[0].float()


def _fire(
    fired: set[str], name: str, several: list[Callable[..., Any]], value: Tensor, hook: Any
) -> Tensor:
    """Call a hook point's functions in turn, by the name that it was asked for (it has aliases)."""
    fired.add(name)
    for function in several:
        changed = function(value, name)
        value = value if changed is None else changed
    return value
