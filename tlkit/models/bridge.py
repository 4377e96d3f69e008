"""The one place that knows how TransformerLens wraps Hugging Face modules."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor, nn

from tlkit.errors import SpecError
from tlkit.models.streamed import layers_of, release


@dataclass(frozen=True, eq=False)
class Slot:
    """Where an activation lies in the output (or input) of a Hugging Face module.

    Args:
        module: The module whose output or input holds it.
        end: ``"out"`` or ``"in"``.
        part: Which of ``parts`` equal or sized pieces of the last axis, None for the whole.
        sizes: Sizes of the pieces laid one after another.
        interleaved: The last axis is ``[head, parts, d_head]`` (GPT-NeoX), not pieces in a row.
        heads: Number of heads, where the activation has a head axis.
    """

    module: nn.Module
    end: str = "out"
    part: int | None = None
    sizes: tuple[int, ...] = ()
    interleaved: bool = False
    heads: int | None = None

    def view(self, tensor: Tensor) -> Tensor:
        """The activation as a writable view ``[row, features]`` or ``[row, head, d_head]``."""
        flat = tensor.view(-1, tensor.shape[-1])
        if self.interleaved and self.heads:
            return flat.view(len(flat), self.heads, 3, -1)[:, :, self.part or 0]
        if self.part is not None:
            start = sum(self.sizes[: self.part])
            flat = flat[:, start : start + self.sizes[self.part]]
        return flat.unflatten(-1, (self.heads, -1)) if self.heads else flat


class Parts:
    """A bridge's Hugging Face modules by role, found through TransformerLens's own names."""

    def __init__(self, bridge: Any) -> None:
        self.bridge = bridge
        self.hf: Any = bridge.original_model
        self.config: Any = self.hf.config.get_text_config()
        self.n_layers: int = bridge.cfg.n_layers
        self.n_heads: int = bridge.cfg.n_heads
        self.n_kv_heads: int = bridge.cfg.n_key_value_heads or bridge.cfg.n_heads
        self.d_head: int = bridge.cfg.d_head
        self.d_model: int = bridge.cfg.d_model
        self.blocks: list[nn.Module] = [b.original_component for b in bridge.blocks]
        self.attentions: list[nn.Module] = [b.attn.original_component for b in bridge.blocks]
        self.embed: nn.Module = bridge.embed.original_component
        self.final_norm: nn.Module = bridge.ln_final.original_component
        self.head: nn.Module = bridge.unembed.original_component
        self.parallel = "hook_resid_mid" not in bridge.blocks[0].hook_aliases
        # Found now: while the modules are put back, the bridge's own names are gone.
        self._slots = {
            (component, layer): self._find(component, layer)
            for layer in range(self.n_layers)
            for component in ("q", "k", "v", "attn_out", "mlp_out", "mlp_pre", "mlp_post")
            if not (self._mixture and component in ("mlp_pre", "mlp_post"))
        }

    @property
    def device(self) -> Any:
        """Where the embeddings lie."""
        return next(self.embed.parameters()).device

    @property
    def streamed(self) -> bool:
        """Whether the blocks' weights stay on disk."""
        return layers_of(self.bridge) is not None

    @property
    def context(self) -> int:
        """Most tokens that the model was made for."""
        return int(getattr(self.config, "max_position_embeddings", None) or 2**30)

    @property
    def dtype(self) -> Any:
        """The weights' floating type."""
        return next(self.embed.parameters()).dtype

    @cached_property
    def swaps(self) -> "list[Swap]":
        """What `unbridged` swaps; found once, for a run of many."""
        return swaps_of(self.bridge)

    @cached_property
    def configs(self) -> list[Any]:
        """Every configuration object that a module of the model holds."""
        with unbridged(self.bridge, self.swaps) as hf:
            held = {id(m.config): m.config for m in hf.modules() if hasattr(m, "config")}
        return list(held.values())

    @cached_property
    def softcap(self) -> float | None:
        """The cap on final logits (Gemma 2), if any."""
        return getattr(self.config, "final_logit_softcapping", None)

    def unsupported(self, component: str) -> str | None:
        """Why a site cannot be read and written on this model, or None if it can."""
        if component == "resid_mid" and self.parallel:
            return (
                "its blocks run attention and MLP in parallel, so there is no stream between them"
            )
        if component in ("mlp_pre", "mlp_post") and self._mixture:
            return "its MLPs are mixtures of experts, which have no single neuron axis"
        if component == "attn_scores" and not self.writable_patterns:
            return "TransformerLens leaves its attention to Hugging Face, where scores are not seen"
        return None

    @cached_property
    def _mixture(self) -> bool:
        return self.bridge.blocks[0].mlp.hook_aliases.get("hook_pre") in (None, "hook_in")

    @cached_property
    def writable_patterns(self) -> bool:
        """Whether writing TransformerLens's ``hook_pattern`` changes the model's output."""
        import torch

        tokens = torch.arange(1, 4, device=self.device)[None]
        seen: list[Tensor] = []

        def keep(value: Tensor, hook: Any) -> None:
            seen.append(value.detach().clone())

        def wipe(value: Tensor, hook: Any) -> None:
            value.zero_()  # in place: where a new tensor would be ignored, that is warned of

        watch = ("blocks.0.attn.hook_z", keep)
        with torch.no_grad():
            for hooks in ([watch], [("blocks.0.attn.hook_pattern", wipe), watch]):
                self.bridge.run_with_hooks(tokens, fwd_hooks=hooks, return_type=None)
        return not torch.equal(seen[0], seen[1])

    def slot(self, component: str, layer: int) -> Slot:
        """Where a site lies on the Hugging Face modules (not the stream, not attention's inside).

        Raises:
            SpecError: The model has no such site.
        """
        reason = self.unsupported(component)
        if reason:
            raise SpecError(f"{self.name} has no site {component!r}: {reason}.")
        return self._slots[component, layer]

    def _find(self, component: str, layer: int) -> Slot:
        block = self.bridge.blocks[layer]
        if component in ("q", "k", "v"):
            return self._projection(layer, component)
        if component in ("attn_out", "mlp_out"):
            return Slot(*_owner(block, block.hook_aliases[f"hook_{component}"]))
        module, end = _owner(block.mlp, block.mlp.hook_aliases[f"hook_{component[4:]}"])
        fused: Any = getattr(self.blocks[layer], "mlp", None)
        if component == "mlp_pre" and hasattr(fused, "gate_up_proj"):
            width = fused.gate_up_proj.out_features // 2
            return Slot(fused.gate_up_proj, part=0, sizes=(width, width))
        return Slot(module, end)

    def _projection(self, layer: int, component: str) -> Slot:
        attention, part = self.attentions[layer], "qkv".index(component)
        heads = self.n_heads if component == "q" else self.n_kv_heads
        if hasattr(attention, "query_key_value"):
            module = attention.query_key_value
            return Slot(_original(module), part=part, interleaved=True, heads=heads)
        fused = getattr(attention, "c_attn", None) or getattr(attention, "qkv_proj", None)
        if fused is not None:
            kv = self.n_kv_heads * self.d_head
            sizes = (self.n_heads * self.d_head, kv, kv)
            return Slot(_original(fused), part=part, sizes=sizes, heads=heads)
        bridge = getattr(self.bridge.blocks[layer].attn, component)
        return Slot(bridge.original_component, heads=heads)

    @property
    def name(self) -> str:
        """The Hugging Face class, for messages."""
        return type(self.hf).__name__


def _original(module: Any) -> nn.Module:
    return getattr(module, "original_component", None) or module


def _owner(component: Any, path: str) -> tuple[nn.Module, str]:
    """The Hugging Face module behind an alias such as ``o.hook_in``, and which end of it."""
    *names, hook = path.split(".")
    for name in names:
        component = getattr(component, name)
    return component.original_component, hook.removeprefix("hook_")


Swap = tuple[nn.Module, str, nn.Module, nn.Module]
"""A module, the name of its child, TransformerLens's wrapper there, and the child that it wraps."""


def swaps_of(bridge: Any) -> list[Swap]:
    """Every wrapper that TransformerLens has put in a Hugging Face model's place."""
    from transformer_lens.model_bridge.generalized_components.base import GeneralizedComponent

    found: list[Swap] = []

    def walk(module: nn.Module) -> None:
        for name, child in module._modules.items():
            if isinstance(child, GeneralizedComponent) and child.original_component is not None:
                found.append((module, name, child, child.original_component))
                child = child.original_component
            if isinstance(child, nn.Module):
                walk(child)

    walk(bridge.original_model)
    return found


@contextlib.contextmanager
def unbridged(bridge: Any, swaps: list[Swap] | None = None) -> Iterator[nn.Module]:
    """The Hugging Face model with its own modules put back; the bridge is restored on leaving.

    TransformerLens replaces modules in place by wrappers that compute attention themselves. While
    they are put back, hooks on the bridge do not fire. ``swaps`` saves the search for them.
    """
    swaps = swaps_of(bridge) if swaps is None else swaps
    try:
        for module, name, _, original in swaps:
            module._modules[name] = original
        yield bridge.original_model
    finally:
        for module, name, wrapper, _ in reversed(swaps):
            module._modules[name] = wrapper
        release(bridge)
