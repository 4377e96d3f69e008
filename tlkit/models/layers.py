"""The blocks of a model whose weights stay on disk: one in memory at a time, the next read ahead.

A block's own modules hold `Stored` weights until the block is called; then they hold tensors, up
to the call of another block or the end of the run. So whatever calls a block, the packed engine or
a plain forward pass, finds its weights, and passes over the model in order of its layers read each
layer once.
"""

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from typing import Any

import torch
from torch import Tensor, nn

from tlkit.models.stored import Stored, parameter
from tlkit.models.streamed import KEY
from tlkit.models.weight_files import WeightFiles, private_memory

_ALIGNED = 64
_SPLITS = ("split_qkv_matrix", "split_gate_up_matrix")

Held = tuple[nn.Module, str, Stored]
"""A module, the name that it has for a weight, and the weight."""


class Layers:
    """Brings each block's weights when the block is called.

    Args:
        files: Where the weights lie.
        blocks: The blocks' own modules, in order.
        held: Per block, its weights.
        device: Where they go.

    Attributes:
        loads: How often each block has been read.
    """

    def __init__(
        self, files: WeightFiles, blocks: Sequence[nn.Module], held: Sequence[Sequence[Held]],
        device: str,
    ) -> None:  # fmt: skip
        self.files, self.blocks, self.held, self.device = files, list(blocks), held, device
        self.loads = [0] * len(self.blocks)
        self._inside: int | None = None
        self._asleep = False
        self._ahead: tuple[int, Future[dict[int, nn.Parameter]], Event] | None = None
        self._reader: ThreadPoolExecutor | None = None
        self._split: dict[int, list[tuple[nn.Module, str, Tensor]]] = {}
        self._cut: dict[int, int] = {}  # which block's fused weight a weight is cut from
        self._wrappers: list[list[Any]] = [[] for _ in self.blocks]

    @property
    def largest(self) -> int:
        """Bytes of the largest block in memory."""
        return max(sum(_room(one) for _, _, one in _once(held)) for held in self.held)

    @property
    def in_memory(self) -> int:
        """Bytes of blocks' weights that modules hold now."""
        sizes = {
            weight.data_ptr(): weight.numel() * weight.itemsize
            for held in self.held
            for module, name, _ in held
            if not isinstance(weight := module._parameters[name], Stored | None)
        }
        return sum(sizes.values())

    def attach(self, bridge: Any) -> None:
        """Take charge of a hooked model's blocks, which have no weights so far."""
        bridge.__dict__[KEY] = self
        for index, block in enumerate(self.blocks):
            block.register_forward_pre_hook(_Enter(self, index))
            for name in ("attn", "mlp"):
                part: Any = getattr(bridge.blocks[index], name, None)
                if any(hasattr(part, split) for split in _SPLITS):
                    self._wrappers[index].append(part)
                    part.register_forward_pre_hook(_Split(self, index))
        bridge.original_model.register_forward_hook(_Release(self))
        for held in self.held:
            _put(held, {})
        for index, parts in enumerate(self._wrappers):
            for weight in (weight for part in parts for weight in part.parameters()):
                if not isinstance(weight, Stored):
                    self._cut[id(weight)] = index

    def enter(self, index: int) -> None:
        """Bring a block's weights, let those of another go, and begin to read the next."""
        if self._inside == index or self._asleep:
            return
        self._leave()
        weights = self._taken(index) or self._load(index, Event())
        _put(self.held[index], weights)
        self._inside = index
        if index + 1 < len(self.blocks):
            if self._reader is None:
                self._reader = ThreadPoolExecutor(1, thread_name_prefix="tlkit-weights")
            stop = Event()
            self._ahead = (index + 1, self._reader.submit(self._load, index + 1, stop), stop)

    @contextlib.contextmanager
    def asleep(self) -> Iterator[None]:
        """Bring nothing: blocks are called, and do not compute."""
        self._asleep = True
        try:
            yield
        finally:
            self._asleep = False

    def release(self) -> None:
        """Let every block's weights go; the files are read again when one is called."""
        self._leave()
        self._taken(-1)

    def _leave(self) -> None:
        if self._inside is None:
            return
        for module, name, weight in self._split.pop(self._inside, []):
            module._parameters[name] = weight  # type: ignore[assignment]
        _put(self.held[self._inside], {})
        self._inside = None

    def _taken(self, index: int) -> dict[int, nn.Parameter] | None:
        """What was read ahead, if that is this block; else it is dropped, and waited for."""
        if self._ahead is None:
            return None
        (ahead, future, stop), self._ahead = self._ahead, None
        if ahead == index:
            return future.result()
        stop.set()
        if not future.cancel():
            future.exception()  # what went wrong there concerns nobody now
        return None

    def _load(self, index: int, stop: Event) -> dict[int, nn.Parameter]:
        """Read a block's weights into one piece of memory, which goes when they go."""
        several = _once(self.held[index])
        slab = private_memory(sum(_room(one) for _, _, one in several))
        found: dict[int, nn.Parameter] = {}
        begin = 0
        for _, _, one in several:
            if stop.is_set():
                return {}
            raw = slab[begin : begin + one.numel() * one.dtype.itemsize]
            out = raw.view(one.dtype).view(one.shape)
            self.files.fill(one.key, out)
            found[id(one)] = parameter(out.to(self.device))
            begin += _room(one)
        self.loads[index] += 1
        return found

    def split(self, index: int) -> None:
        """Make the separate q, k, v (gate, up) that TransformerLens's own forward pass uses.

        It cuts fused weights when a model is wrapped, which is before there are any.
        """
        self.enter(index)
        if index in self._split:
            return
        kept = self._split.setdefault(index, [])
        for wrapper in self._wrappers[index]:
            cut = getattr(wrapper, next(name for name in _SPLITS if hasattr(wrapper, name)))
            with torch.device("meta"):  # its new modules draw no weights
                parts = cut(wrapper.original_component)
            names = ("q", "k", "v") if len(parts) == 3 else ("gate", "in")
            for name, part in zip(names, parts, strict=True):
                own = getattr(wrapper, name).original_component
                for key, weight in part.named_parameters():
                    kept.append((own, key, own._parameters[key]))
                    own._parameters[key] = weight.requires_grad_(False)

    def tensors(self, model: Any, name: str, weight: Tensor) -> Any:
        """A parameter's values, flattened, piece by piece; one that is cut from a fused one too."""
        if isinstance(weight, Stored):
            return weight.pieces()
        if id(weight) not in self._cut:
            return [weight]
        self.split(self._cut[id(weight)])
        return [model.get_parameter(name)]


class _Enter:
    """Called before a block is."""

    def __init__(self, layers: Layers, index: int) -> None:
        self.layers, self.index = layers, index

    def __call__(self, module: Any, args: Any) -> None:
        self.layers.enter(self.index)


class _Split(_Enter):
    """Called before TransformerLens's own attention (or MLP) is."""

    def __call__(self, module: Any, args: Any) -> None:
        self.layers.split(self.index)


class _Release:
    """Called when the whole model has run."""

    def __init__(self, layers: Layers) -> None:
        self.layers = layers

    def __call__(self, module: Any, args: Any, out: Any) -> None:
        self.layers.release()


def _once(held: Sequence[Held]) -> list[Held]:
    """Each weight once, also where several modules share it."""
    return list({id(one): (module, name, one) for module, name, one in held}.values())


def _room(weight: Stored) -> int:
    size = weight.numel() * weight.dtype.itemsize
    return -(-size // _ALIGNED) * _ALIGNED


def _put(held: Sequence[Held], weights: dict[int, nn.Parameter]) -> None:
    """Give modules their weights, or (where there is none) the note of where they lie."""
    for module, name, stored in held:
        module._parameters[name] = weights.get(id(stored), stored)  # type: ignore[assignment]
