"""One plain forward pass through the model's own modules, keeping what later runs need."""

import contextlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tlkit.engine.seam import grouped_scores, mixed_values, seam
from tlkit.engine.sources import Captured, Place
from tlkit.errors import EngineError
from tlkit.models.bridge import Parts

UNWATCHED = ("embed", "resid_pre", "resid_post", "z", "pattern", "attn_scores")
"""Sites that no hook within a block is needed for."""


@dataclass(eq=False)
class Run:
    """What a forward pass of several right-padded sequences left behind.

    Attributes:
        lengths: Tokens of each example.
        stream: Residual stream entering each block, and the last block's output:
            ``n_layers + 1`` tensors ``[example, pos, d_model]``.
        keys, values: Per layer ``[example, pos, kv_head, d_head]``, after rotary and norms.
        visible: Per layer bool ``[query, key]``: causality and sliding windows.
        arguments: Per layer, what the model passed to the block besides the stream.
        sites: What was asked to be kept.
    """

    lengths: list[int]
    stream: list[Tensor] = field(default_factory=list)
    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)
    visible: list[Tensor] = field(default_factory=list)
    arguments: list[dict[str, Any]] = field(default_factory=list)
    sites: Captured = field(default_factory=dict)


class Recorder:
    """Computes attention as the model would, and keeps streams, keys, values and sites."""

    def __init__(self, parts: Parts, lengths: list[int], wants: set[Place], full: bool) -> None:
        self.parts = parts
        self.run = Run(lengths)
        self.wants = wants
        self.full = full
        self.batch, self.longest = len(lengths), lengths.index(max(lengths))
        self._masks: dict[int, tuple[Tensor | None, Tensor]] = {}

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float,
        softcap: float | None,
    ) -> Tensor:  # fmt: skip
        """Softmax attention in the order of operations of transformers' eager code."""
        visible = self._visible(mask, q.shape[2], q.device)
        scores = grouped_scores(q, k, scale, softcap)
        if mask is None:
            scores = scores.masked_fill(~visible, torch.finfo(scores.dtype).min)
        else:
            scores = scores + mask[..., : k.shape[2]]
        pattern = scores.softmax(-1, dtype=torch.float32).to(v.dtype)
        z = mixed_values(pattern, v)
        if self.full:
            self.run.keys.append(k.transpose(1, 2).contiguous())
            self.run.values.append(v.transpose(1, 2).contiguous())
            self.run.visible.append(visible)
        for name, value in (("attn_scores", scores), ("pattern", pattern), ("z", z)):
            self.seen(name, layer, value)
        return z

    def seen(self, name: str, layer: int, value: Tensor) -> None:
        """Keep what attention computed, if it was asked for."""
        if (name, layer) in self.wants:
            self.run.sites[name, layer] = value.detach()

    def _visible(self, mask: Tensor | None, size: int, device: Any) -> Tensor:
        """Which keys each query sees, from the longest example's rows (it has no padding)."""
        if id(mask) not in self._masks:
            if mask is None:
                seen = torch.ones(size, size, dtype=torch.bool, device=device).tril()
            else:
                row = mask[self.longest if len(mask) > 1 else 0, 0, :, :size]
                seen = row if row.dtype == torch.bool else row > -1e4
            self._masks[id(mask)] = (
                mask,
                seen,
            )  # keep the mask alive, so that its id stays its own
        return self._masks[id(mask)][1]

    def enter_block(self, layer: int, block: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        """Keep what the model passes to a block."""
        self.hidden, arguments = told(block.forward, args, kwargs)
        if self.full:
            self.run.arguments.append(arguments)
        self.between(layer, self.hidden)

    def between(self, layer: int, stream: Tensor) -> None:
        """Keep the stream that enters a block, or (``layer = n_layers``) leaves the last one."""
        if self.full:
            self.run.stream.append(stream.detach())
        for name, at in (("resid_pre", layer), ("resid_post", layer - 1)):
            if (name, at) in self.wants:
                self.run.sites[name, at] = stream.detach().clone()

    def keep(self, component: str, layer: int, value: Tensor) -> None:
        """Keep an activation ``[row, ...]`` as ``[example, pos, ...]``."""
        per_example = value.unflatten(0, (self.batch, -1))
        if component == "resid_mid":
            per_example = per_example + self.hidden
        self.run.sites[component, layer] = per_example.detach().clone()


def record(
    parts: Parts, ids: list[list[int]], wants: set[Place] | None = None, *, full: bool = True
) -> Run:
    """Run sequences through the model once.

    Args:
        parts: The model.
        ids: Token ids per example; padded on the right, which causal attention never sees.
        wants: Sites to keep.
        full: Whether to keep what a packed run starts from: streams, keys, values, arguments.

    Raises:
        EngineError: Attention did not come by as often as there are layers.
    """
    wants = wants or set()
    recorder = Recorder(parts, [len(row) for row in ids], wants, full)
    tokens, mask = padded(ids, parts.device)
    calls: list[int] = []
    attend = recorder.attend

    def counted(layer: int, *rest: Any) -> Tensor:
        calls.append(layer)
        return attend(layer, *rest)

    recorder.attend = counted  # type: ignore[method-assign]
    with torch.no_grad(), seam(parts, recorder) as hf, contextlib.ExitStack() as stack:
        _watch(parts, recorder, wants, stack)
        hf.base_model(tokens, attention_mask=mask, use_cache=False)
    if calls != list(range(parts.n_layers)):
        raise EngineError(
            f"{parts.name}: attention came by {len(calls)} times for {parts.n_layers} layers."
        )
    return recorder.run


def told(
    forward: Callable[..., Any], args: Any, kwargs: dict[str, Any]
) -> tuple[Tensor, dict[str, Any]]:
    """The stream that a block's own forward is called with, and the other arguments by name.

    Raises:
        EngineError: It does not name the stream as all others do.
    """
    bound = inspect.signature(forward).bind(*args, **kwargs)
    arguments: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        arguments |= value if isinstance(value, dict) and name == "kwargs" else {name: value}
    if "hidden_states" not in arguments:
        name = getattr(forward, "__qualname__", "a block")
        raise EngineError(f"{name} does not say which argument is the stream")
    return arguments.pop("hidden_states"), arguments


def padded(ids: list[list[int]], device: Any) -> tuple[Tensor, Tensor]:
    """Token ids ``[example, pos]`` padded on the right, and their attention mask."""
    width = max(len(row) for row in ids)
    tokens = torch.zeros(len(ids), width, dtype=torch.long)
    mask = torch.zeros(len(ids), width, dtype=torch.long)
    for i, row in enumerate(ids):
        tokens[i, : len(row)] = torch.tensor(row)
        mask[i, : len(row)] = 1
    return tokens.to(device), mask.to(device)


def _watch(
    parts: Parts, recorder: Recorder, wants: set[Place], stack: contextlib.ExitStack
) -> None:
    """Put the recorder's hooks on the modules, to be taken off with the stack."""

    def on(handle: Any) -> None:
        stack.callback(handle.remove)

    for layer, block in enumerate(parts.blocks):

        def enter(module: Any, args: Any, kwargs: Any, layer: int = layer) -> None:
            recorder.enter_block(layer, module, args, kwargs)

        on(block.register_forward_pre_hook(enter, with_kwargs=True))
    end = parts.n_layers
    on(parts.final_norm.register_forward_pre_hook(lambda m, args: recorder.between(end, args[0])))
    for component, layer in wants:
        if component == "embed":
            on(watch_embed(parts, recorder))
        elif component not in UNWATCHED:
            on(watch_slot(parts, component, layer, recorder.keep))


def watch_embed(parts: Parts, recorder: Recorder) -> Any:
    """Let a recorder keep the token embeddings when they are computed."""
    return parts.embed.register_forward_hook(
        lambda m, a, out: recorder.keep("embed", 0, out.flatten(0, 1))
    )


def watch_slot(parts: Parts, component: str, layer: int, seen: Any) -> Any:
    """Call ``seen(component, layer, view)`` with a writable view whenever a site is computed."""
    slot = parts.slot("attn_out" if component == "resid_mid" else component, layer)

    def after(module: Any, args: Any, out: Any) -> None:
        seen(component, layer, slot.view(out if torch.is_tensor(out) else out[0]))

    def before(module: Any, args: Any) -> None:
        seen(component, layer, slot.view(args[0]))

    if slot.end == "in":
        return slot.module.register_forward_pre_hook(before)
    return slot.module.register_forward_hook(after)
