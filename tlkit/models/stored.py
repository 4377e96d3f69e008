"""A weight that stays in its file: it knows its shape and type, and is read where it is used."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from tlkit.errors import SpecError
from tlkit.models.weight_files import WeightFiles, private_memory

TILE = 16 * 2**20
"""Most bytes of a table that a product holds at once."""
_ALIASES = {torch.ops.aten.detach.default, torch.ops.aten.alias.default}


class Stored(Tensor):
    """A tensor without memory, its values in a file.

    Looking up rows reads these rows, and a linear map is computed over tiles of its rows; whatever
    else is done with it reads it whole, for as long as that takes. Nothing can be written to it.
    """

    files: WeightFiles
    key: str
    turned: bool

    @staticmethod
    def __new__(
        cls, files: WeightFiles, key: str, shape: Any, dtype: torch.dtype, device: Any,
        turned: bool = False,
    ) -> "Stored":  # fmt: skip
        """Note where a weight lies, the type and place that it is read into, and a transpose."""
        make: Any = Tensor._make_wrapper_subclass  # type: ignore[attr-defined]
        made = make(cls, tuple(shape), dtype=dtype, device=device, requires_grad=False)
        made.files, made.key, made.turned = files, key, turned
        return made

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        """Its name, shape and type; no values."""
        return f"Stored({self.key}, {tuple(self.shape)}, {self.dtype})"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Serve look-ups and linear maps piece by piece; pass on everything else."""
        kwargs = kwargs or {}
        served = _SERVED.get(func)
        with torch._C.DisableTorchFunctionSubclass():
            if served is not None:
                found = served(*args, **kwargs)
                if found is not None:
                    return found
            return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Read the weight whole for an operation that wants all of it."""
        if func in _ALIASES:
            one = args[0]
            return Stored(one.files, one.key, one.shape, one.dtype, one.device, one.turned)
        if func._schema.is_mutable and isinstance(args[0], Stored):
            raise SpecError(
                f"{args[0].key} is read from its file, and cannot be changed in memory; load the "
                f"model without stream=True to edit its weights."
            )
        args, kwargs = tree_map_only(Stored, Stored.whole, (args, kwargs or {}))
        return func(*args, **kwargs)

    def whole(self) -> Tensor:
        """All of it, read now."""
        shape = self.files.shape(self.key)
        out = torch.empty(shape, dtype=self.dtype)
        self.files.fill(self.key, out)
        return (out.T if self.turned else out).to(self.device)

    def pieces(self) -> Iterator[Tensor]:
        """All of it, flattened, a few MiB at a time."""
        return self.files.pieces(self.key, self.dtype)

    def rows(self, ids: Tensor) -> Tensor:
        """Rows by their numbers ``[...]``, the only ones that are read: ``[..., column]``."""
        return self.files.gather(self.key, ids, self.dtype).to(self.device)


def _embedding(ids: Any, weight: Any, *rest: Any, **more: Any) -> Tensor | None:
    plain = not any(rest[1:2]) and not more.get("max_norm")
    return weight.rows(ids) if plain and _straight(weight) else None


def _linear(x: Tensor, weight: Any, bias: Any = None) -> Tensor | None:
    if not _straight(weight) or isinstance(x, Stored):
        return None
    bias = bias.whole() if isinstance(bias, Stored) else bias
    height, width = weight.shape
    step = min(height, max(1, TILE // (width * weight.dtype.itemsize)))
    memory = private_memory(step * width * weight.dtype.itemsize)
    tile = memory.view(weight.dtype).view(step, width)
    out = x.new_empty(*x.shape[:-1], height)
    for first in range(0, height, step):
        last = min(first + step, height)
        rows = tile[: last - first]
        weight.files.fill(weight.key, rows, first * width)
        own = None if bias is None else bias[first:last]
        out[..., first:last] = nn.functional.linear(x, rows.to(weight.device), own)
    return out


def _item(weight: Any, index: Any) -> Tensor | None:
    plain = isinstance(index, Tensor) and index.dtype == torch.long
    return weight.rows(index) if plain and _straight(weight) else None


def _transpose(weight: Any) -> Tensor | None:
    """A transpose that is only a note, for TransformerLens asks for one while it wraps a model."""
    if not _straight(weight) or weight.ndim != 2:
        return None
    shape = weight.shape[1], weight.shape[0]
    make: Any = Stored
    return make(weight.files, weight.key, shape, weight.dtype, weight.device, turned=True)


def _straight(weight: Any) -> bool:
    return isinstance(weight, Stored) and not weight.turned


_SERVED: dict[Any, Any] = {
    nn.functional.embedding: _embedding,
    nn.functional.linear: _linear,
    Tensor.__getitem__: _item,
    Tensor.T.__get__: _transpose,  # type: ignore[attr-defined]
}


def parameter(weight: Tensor) -> nn.Parameter:
    """A weight as a module holds it."""
    return nn.Parameter(weight, requires_grad=False)
