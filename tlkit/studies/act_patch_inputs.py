"""What TransformerLens's patching functions are given: corrupted tokens and a cache of clean ones.

A cell is free where tokens prove that the patch puts back what is there. A cache holds
activations, not tokens; but where it holds token embeddings, equal rows are equal tokens, to the
model at least. As a cache may also come from another model or from a run with edits, its
activations must besides agree with the model's own run on those tokens.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from tlkit.engine.record import record
from tlkit.engine.reference import capture, hook_name
from tlkit.engine.route import route_of
from tlkit.engine.sources import Captured, Place
from tlkit.errors import SpecError
from tlkit.models.bridge import Parts
from tlkit.prompts.prompts import Prompts
from tlkit.spec.sites import EDGES, HEADS

OTHER = -1
"""Stands for a clean token that is not, or not known to be, the corrupted one."""
CLOSE = {torch.float32: 1e-4, torch.float64: 1e-8}
"""How far equal tokens' activations may be apart, of their largest part, from batch shape alone."""


class Inputs:
    """Checked tokens and cache.

    Args:
        model: A TransformerLens bridge in eval mode.
        tokens: Corrupted token ids ``[batch, pos]``.
        cache: Activations of the clean run, `ActivationCache` or a mapping of full hook names.
        clean_tokens: The clean run's ids, where they are at hand; more cells are then free.

    Raises:
        SpecError: Something does not fit.
    """

    def __init__(self, model: Any, tokens: Any, cache: Any, clean_tokens: Any = None) -> None:
        if not hasattr(model, "original_model"):
            raise SpecError(
                "Patching needs a TransformerLens bridge; load one with "
                "tk.HookedTransformer.from_pretrained."
            )
        _require_eval(model)
        self.parts = Parts(model)
        self.tokens = _ids("corrupted_tokens", tokens).to(self.parts.device)
        self.batch, self.length = self.tokens.shape
        self.cache = cache
        self.clean_tokens = None
        if clean_tokens is not None:
            self.clean_tokens = _ids("clean_tokens", clean_tokens).to(self.parts.device)
            if self.clean_tokens.shape[1] != self.length or len(self.clean_tokens) not in (
                1,
                self.batch,
            ):
                raise SpecError(
                    f"clean_tokens are {tuple(self.clean_tokens.shape)} where corrupted_tokens "
                    f"are {tuple(self.tokens.shape)}; patching needs pairs of equal length."
                )

    def read(self, name: str) -> Tensor:
        """An activation of the cache by its full hook name.

        Raises:
            SpecError: The cache does not hold it.
        """
        try:
            return self.cache[name]
        except (KeyError, IndexError):
            raise SpecError(
                f"clean_cache has no {name!r}; make it with model.run_with_cache(clean_tokens), "
                f"with a names_filter that lets {name!r} through."
            ) from None

    def clean(self, component: str, layer: int) -> Tensor:
        """A site of the clean run, one ``[pos, ...]`` (or ``[head, query, key]``) per example.

        Raises:
            SpecError: The cache does not hold it, or not for these tokens.
        """
        name = hook_name(component, layer)
        value = self.read(name).to(self.parts.device)
        if component in HEADS and value.ndim == 3:
            heads = self.parts.n_kv_heads if component in ("k", "v") else self.parts.n_heads
            value = value.unflatten(-1, (heads, -1))
        where = slice(2, 4) if component in EDGES else slice(1, 2)
        lengths = tuple(value.shape[where])
        ndim = {"z": 4, "q": 4, "k": 4, "v": 4, "pattern": 4}.get(component, 3)
        if value.ndim != ndim or any(length != self.length for length in lengths):
            raise SpecError(
                f"clean_cache's {name} is {tuple(value.shape)}, which does not fit corrupted "
                f"tokens of {tuple(self.tokens.shape)}; patching needs pairs of equal length."
            )
        if len(value) not in (1, self.batch):
            raise SpecError(
                f"clean_cache holds {len(value)} prompts and corrupted_tokens {self.batch}; give "
                f"as many of each, or one clean prompt for all."
            )
        return value.expand(self.batch, *value.shape[1:])

    def captured(self, places: Iterable[Place]) -> Captured:
        """Several sites of the clean run."""
        return {place: self.clean(*place) for place in sorted(places)}

    def prompts(self, places: set[Place]) -> Prompts:
        """The pairs, with `OTHER` for clean tokens that are not known to be the corrupted ones."""
        clean = torch.where(self.known_same(places), self.tokens, OTHER)
        aligned = tuple(tuple(range(self.length)) for _ in range(self.batch))
        rows = [tuple(tuple(row) for row in ids.tolist()) for ids in (clean, self.tokens)]
        return Prompts(clean=rows[0], corrupted=rows[1], alignment=aligned)

    def own(self, places: set[Place]) -> Captured:
        """Several sites of the corrupted run, ``[example, ...]``."""
        ids = self.tokens.tolist()
        if route_of(self.parts).packed:
            return record(self.parts, ids, places, full=False).sites
        return {
            place: torch.stack(rows) for place, rows in capture(self.parts, ids, places).items()
        }

    def known_same(self, places: set[Place]) -> Tensor:
        """Where the clean token is provably the corrupted one, bool ``[batch, pos]``.

        Behind the first difference it says so for what depends on the token alone.
        """
        same = self._same_tokens()
        nothing = torch.zeros_like(same)
        if not bool(same.any()) or not places:
            return same
        tolerance = CLOSE.get(self.parts.dtype)
        if tolerance is None:
            # In low precision batch shapes differ as much as near twins of a model do.
            return same if self.clean_tokens is not None else nothing
        close, first = self._close(places, tolerance)
        prefix = (same & close).int().cumprod(1).bool()
        lead = prefix.sum(1, keepdim=True)
        behind = torch.arange(self.length, device=same.device)[None] > lead
        return prefix | (same & first & behind)

    def _same_tokens(self) -> Tensor:
        if self.clean_tokens is not None:
            return (self.clean_tokens == self.tokens).expand(self.tokens.shape)
        unknown = torch.zeros_like(self.tokens, dtype=torch.bool)
        try:
            theirs = self.cache["hook_embed"]
        except (KeyError, IndexError):
            return unknown
        with torch.no_grad():
            own = self.parts.embed(self.tokens)
        if theirs.shape[1:] != own.shape[1:] or theirs.dtype != own.dtype:
            return unknown
        return (theirs.to(own.device) == own).all(-1)

    def _close(self, places: set[Place], tolerance: float) -> tuple[Tensor, Tensor]:
        """Where the cache agrees with the model's own run: at all places, and at layer 0's."""
        own = self.own(places)
        close = torch.ones_like(self.tokens, dtype=torch.bool)
        first = close.clone()
        for component, layer in places:
            theirs, ours = self.clean(component, layer), own[component, layer]
            if component in EDGES:
                theirs, ours = theirs.transpose(1, 2), ours.transpose(1, 2)
            gap = (theirs - ours).abs().flatten(2).amax(-1)
            agrees = gap <= tolerance * ours.abs().flatten(2).amax(-1)
            close &= agrees
            if layer == 0:
                first &= agrees
        return close, first


def _ids(name: str, tokens: Any) -> Tensor:
    if isinstance(tokens, (str, Mapping)) or not isinstance(tokens, Tensor):
        raise SpecError(
            f"{name} must be token ids, a tensor [batch, pos]; model.to_tokens(text) makes them."
        )
    if tokens.ndim != 2 or tokens.is_floating_point() or tokens.numel() == 0:
        raise SpecError(
            f"{name} must be token ids [batch, pos]; got {tokens.dtype} {tuple(tokens.shape)}."
        )
    return tokens


def _require_eval(model: Any) -> None:
    for root in (model, model.original_model):
        for name, module in root.named_modules():
            if module.training:
                raise SpecError(
                    f"Patching needs the model in evaluation mode, and {name or 'it'} is in "
                    f"training mode; call model.eval() first."
                )
