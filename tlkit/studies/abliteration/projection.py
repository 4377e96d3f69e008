"""Hook-time projection: a direction taken out of everything that is added to the stream."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tlkit.errors import EngineError, SpecError
from tlkit.models.bridge import Parts
from tlkit.models.writers import Write, writes
from tlkit.spec.directions import Direction
from tlkit.spec.sites import Site

Number = float | int
Strengths = Number | Sequence[Number] | Mapping[int, Number] | None


def without(
    value: Float[Tensor, "*any d_model"], basis: Float[Tensor, "rank d_model"], strength: Number
) -> Float[Tensor, "*any d_model"]:
    """Take out of x: x - strength * D^T D x over the last axis, computed in float32 at least.

    Arditi et al. 2024 (arXiv:2406.11717), eq. 4; strength 1 takes the direction out whole.
    """
    wide = value if value.dtype == torch.float64 else value.float()
    rows = basis.to(wide)
    return (wide - strength * ((wide @ rows.T) @ rows)).to(value.dtype)


def checked_basis(parts: Parts, direction: Any) -> Float[Tensor, "rank d_model"]:
    """A direction's orthonormal rows, of the model's width.

    Args:
        parts: The model.
        direction: A `tk.Direction`, a tensor, or the Dataset that `run` gave.

    Raises:
        SpecError: It has another width, or points nowhere.
    """
    rows = as_direction(direction).vector
    if rows.shape[-1] != parts.d_model:
        raise SpecError(
            f"The direction has {rows.shape[-1]} dimensions and the residual stream of "
            f"{parts.name} has {parts.d_model}; give one that was found on this model."
        )
    return rows.to(parts.device)


def as_direction(given: Any) -> Direction:
    """A direction from a `tk.Direction`, a tensor, or the Dataset that `run` gave.

    Raises:
        SpecError: It is none of these.
    """
    if isinstance(given, Direction):
        return given
    if "refusal" in getattr(given, "data_vars", ()):
        about = given.attrs
        site = Site(about["site"], layer=int(about["layer"]), pos=int(about["pos"]))
        rows = torch.as_tensor(given["direction"].values.copy())
        return Direction(rows, site, "difference of means")
    if not isinstance(given, Tensor):
        raise SpecError(
            f"A {type(given).__name__} is no direction; give a tk.Direction, a tensor [d_model], "
            f"or what abliteration.run gave."
        )
    return Direction(given)


def strengths_of(given: Strengths, n_layers: int) -> list[float]:
    """How much is taken out in each layer, 0 to 1; the embeddings go with layer 0.

    Args:
        given: One number for all, one for each layer, a mapping of layers to numbers (0 for
            layers that it lacks), or None for 1 everywhere.
        n_layers: How many layers there are.

    Raises:
        SpecError: A layer does not exist, their number is wrong, or a strength is not 0 to 1.
    """
    if given is None:
        return [1.0] * n_layers
    if isinstance(given, Mapping):
        strange = [layer for layer in given if not 0 <= layer < n_layers]
        if strange:
            raise SpecError(f"There is no layer {strange[0]}; this model has 0 to {n_layers - 1}.")
        found = [float(given.get(layer, 0.0)) for layer in range(n_layers)]
    else:
        found = [given] * n_layers if isinstance(given, int | float) else list(given)
    if len(found) != n_layers:
        raise SpecError(f"There are {len(found)} strengths for {n_layers} layers; give one each.")
    if any(not 0 <= one <= 1 for one in found):
        raise SpecError("A strength is a number between 0 (nothing) and 1 (all of it).")
    return [float(one) for one in found]


@contextlib.contextmanager
def projected(model: Any, direction: Any, weights: Strengths = None) -> Iterator[Any]:
    """The model while a direction is taken out of every write to its residual stream.

    Embedding, learned positions, attention and MLP outputs, behind any norm of theirs: with full
    strength nothing of the direction is left at any place of the stream. The weights stay as they
    are, and on leaving the model is as it was.

    Args:
        model: A loaded model; it may be used by TransformerLens's calls and by tlkit's.
        direction: A `tk.Direction`, a tensor ``[d_model]`` or ``[rank, d_model]``, or the Dataset
            that `run` gave.
        weights: Strength by layer (see `strengths_of`).

    Yields:
        The model.

    Raises:
        SpecError: The direction or a strength does not fit the model.
        EngineError: A hook did not fire while others did, so the numbers would be wrong.
    """
    parts = Parts(model)
    basis, strength = checked_basis(parts, direction), strengths_of(weights, parts.n_layers)
    # Found before the hooks are on, so that a refusal leaves nothing behind.
    chosen = [one for one in writes(parts) if strength[one.layer]]
    counts, handles = [0] * len(chosen), []
    for at, one in enumerate(chosen):
        hook = _Hook(counts, at, basis, strength[one.layer])
        handles.append(one.module.register_forward_hook(hook.inside))
        if one.wrapper is not None:
            handles.append(one.wrapper.register_forward_pre_hook(hook.enter))
            handles.append(one.wrapper.register_forward_hook(hook.leave))
    try:
        yield model
    finally:
        for handle in handles:
            handle.remove()
    _check_fired(parts, chosen, counts)


class _Hook:
    """Projects a module's output once, whether it is called itself or its stand-in computes."""

    def __init__(self, counts: list[int], at: int, basis: Tensor, strength: float) -> None:
        self.counts, self.at, self.basis, self.strength = counts, at, basis, strength
        self.before = -1

    def inside(self, _module: nn.Module, _inputs: Any, out: Any) -> Any:
        """After the module itself."""
        self.counts[self.at] += 1
        if isinstance(out, tuple):
            return without(out[0], self.basis, self.strength), *out[1:]
        return without(out, self.basis, self.strength)

    def enter(self, _module: nn.Module, _inputs: Any) -> None:
        """Before the stand-in."""
        self.before = self.counts[self.at]

    def leave(self, module: nn.Module, inputs: Any, out: Any) -> Any:
        """After the stand-in; what the module did already is not done twice."""
        done = self.counts[self.at] > self.before
        return None if done else self.inside(module, inputs, out)


def _check_fired(parts: Parts, chosen: Sequence[Write], counts: Sequence[int]) -> None:
    most = max(counts, default=0)
    for one, count in zip(chosen, counts, strict=True):
        if count != most:
            raise EngineError(
                f"{parts.name}: the projection at layer {one.layer}'s {one.part} ran {count} times "
                f"and others {most}, so what came out cannot be trusted."
            )
