"""Places in a model whose activations can be read and written."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tlkit.errors import SpecError

Positions = int | str | tuple[int, ...] | None
"""A position, the name of a span, several positions, or None for all of them."""

STREAM = ("embed", "resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out")
HEADS = ("z", "q", "k", "v")
EDGES = ("pattern", "attn_scores")
NEURONS = ("mlp_pre", "mlp_post")
COMPONENTS = (*STREAM, *HEADS, *EDGES, *NEURONS)


def whole(value: Any, what: str) -> int:
    """A whole number as Python's own.

    Raises:
        SpecError: It is none; true and false are none either.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise SpecError(f"{what} must be a whole number, not {value!r}.")
    return int(value.__index__())


def places(wanted: Any, what: str) -> Positions:
    """A position, several, a span's name, or None, as they are kept.

    Raises:
        SpecError: It is none of these.
    """
    if wanted is None or isinstance(wanted, str):
        return wanted
    if hasattr(wanted, "__index__"):
        return whole(wanted, what)
    if not isinstance(wanted, Iterable):
        raise SpecError(f"{what} must be a position, several or a span's name, not {wanted!r}.")
    return tuple(whole(one, f"Each of {what}") for one in wanted)


_NARROWING = ("layer", "head", "pos", "query", "key")
_AXES: Mapping[str, tuple[str, ...]] = {
    **{name: ("layer", "pos") for name in (*STREAM, *NEURONS)},
    "embed": ("pos",),
    **{name: ("layer", "pos", "head") for name in HEADS},
    **{name: ("layer", "head", "query", "key") for name in EDGES},
}


@dataclass(frozen=True)
class Site:
    """One component of a model, narrowed by layer, head and position; ``None`` means all of them.

    Components and the shape of one example's activation:
    ``embed`` (token embeddings, before positions are added), ``resid_pre``, ``resid_mid``,
    ``resid_post`` (the residual stream), ``attn_out``, ``mlp_out`` (what is added to the stream):
    ``[pos, d_model]``; ``q``, ``z``: ``[pos, head, d_head]``; ``k``, ``v``:
    ``[pos, kv_head, d_head]`` (q and k before rotary embedding and norms); ``pattern`` (after the
    softmax), ``attn_scores``: ``[head, query, key]``; ``mlp_pre`` (input of the activation
    function), ``mlp_post`` (input of the output matrix): ``[pos, d_mlp]``.

    Layers, heads and positions count from 0; negative positions count from the prompt's end.
    ``pos`` (or ``query``, ``key``) may be the name of a span of the prompts, or ``"end"``.
    For ``k`` and ``v``, ``head`` is the key/value head.

    Raises:
        SpecError: The component is unknown, or a field does not belong to it.
    """

    component: str
    layer: int | None = None
    head: int | None = None
    pos: Positions = None
    query: Positions = None
    key: Positions = None

    def __post_init__(self) -> None:
        if self.component not in COMPONENTS:
            raise SpecError(
                f"There is no site {self.component!r}; the sites are {', '.join(COMPONENTS)}."
            )
        allowed = _AXES[self.component]
        for name in _NARROWING:
            if getattr(self, name) is not None and name not in allowed:
                raise SpecError(
                    f"Site {self.component!r} has no {name!r}; it is narrowed by "
                    f"{', '.join(allowed)}."
                )
        for name in ("layer", "head"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, whole(value, f"{name} of site {self.component!r}"))
        for name in ("pos", "query", "key"):
            at = places(getattr(self, name), f"{name} of site {self.component!r}")
            object.__setattr__(self, name, at)

    @property
    def axes(self) -> tuple[str, ...]:
        """The fields that narrow this component."""
        return _AXES[self.component]

    @property
    def head_dimension(self) -> str:
        """``kv_head`` for keys and values (grouped-query models have fewer), else ``head``."""
        return "kv_head" if self.component in ("k", "v") else "head"

    def at(self, **narrow: Any) -> "Site":
        """This site with some fields replaced."""
        return replace(self, **narrow)

    def __str__(self) -> str:
        shown = [repr(self.component)]
        shown += [
            f"{name}={getattr(self, name)!r}"
            for name in _NARROWING
            if getattr(self, name) is not None
        ]
        return f"Site({', '.join(shown)})"


def positions(
    wanted: Positions, length: int, spans: Mapping[str, Sequence[Any]], example: int
) -> tuple[int, ...]:
    """The token positions that ``wanted`` means in one prompt.

    Args:
        wanted: A position, a span's name, several positions, or None for all.
        length: The prompt's number of tokens.
        spans: Name to one (start, stop) or None per example.
        example: Which example, for spans and messages.

    Raises:
        SpecError: The span does not exist, or this example has none by that name.
    """
    if wanted is None:
        return tuple(range(length))
    if isinstance(wanted, str):
        if wanted == "end":
            return (length - 1,)
        if wanted not in spans:
            known = ", ".join(["end", *spans]) or "none"
            raise SpecError(f"The prompts have no span {wanted!r}; they have: {known}.")
        span = spans[wanted][example]
        return () if span is None else tuple(range(span[0], span[1]))
    several = (wanted,) if isinstance(wanted, int) else wanted
    resolved = tuple(p + length if p < 0 else p for p in several)
    return tuple(p for p in resolved if 0 <= p < length)
