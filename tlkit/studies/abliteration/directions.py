"""Differences of means: where two kinds of prompt part, layer by layer."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from tlkit.engine.capture import capture
from tlkit.errors import SpecError
from tlkit.models.bridge import Parts
from tlkit.prompts.prompts import Prompts
from tlkit.results.provenance import provenance
from tlkit.results.schema import build
from tlkit.spec.directions import Direction
from tlkit.spec.sites import STREAM, Site
from tlkit.studies.abliteration.inputs import as_prompts, checked_layers, checked_positions

Progress = Callable[[int, int], None]
BATCH = 16
"""Prompts whose activations are in memory at once."""
NOTHING = 1e-5
"""A difference this small, as a share of the mean activation, is rounding."""


class Directions(Mapping[tuple[int, int], Direction]):
    """Directions by (layer, position); position -1 is each prompt's last token.

    Attributes:
        dataset: ``direction`` (layer, pos, rank, d_model), unit rows, NaN where the means do not
            differ; ``norm`` (layer, pos), the length of the difference of means.
    """

    def __init__(self, found: dict[tuple[int, int], Direction], dataset: Any) -> None:
        self._found, self.dataset = found, dataset

    def __getitem__(self, key: tuple[int, int]) -> Direction:
        if key not in self._found:
            raise SpecError(
                f"There is no direction at layer {key[0]}, position {key[1]}: it was not asked "
                f"for, or the means do not differ there."
            )
        return self._found[key]

    def __contains__(self, key: object) -> bool:
        return key in self._found

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


class _Sums:
    """Running sums of activations ``[layer, pos, d_model]``, and of their products if needed."""

    def __init__(self, second: bool) -> None:
        self.n, self.first, self.products = 0, np.zeros(0), np.zeros(0)
        self._second = second

    def add(self, values: np.ndarray) -> None:
        """Take the activations ``[layer, example, pos, d_model]`` of some prompts."""
        wide = values.astype(np.float64)
        self.first = wide.sum(1) + (self.first if self.n else 0.0)
        if self._second:
            products = np.einsum("lepd,lepf->lpdf", wide, wide)
            self.products = products + (self.products if self.n else 0.0)
        self.n += wide.shape[1]

    @property
    def mean(self) -> np.ndarray:
        """Over prompts."""
        return self.first / self.n


def directions(
    model: Any,
    harmful: Any,
    harmless: Any,
    *,
    layers: Iterable[int] | None = None,
    positions: Iterable[int] = (-1,),
    site: str = "resid_pre",
    chat: bool = True,
    rank: int = 1,
    progress: Progress | None = None,
) -> Directions:
    """Find the direction of a behaviour by difference of means.

    Mean activation of the prompts that show the behaviour less that of the others (Arditi et al.
    2024, arXiv:2406.11717, eq. 2), from running sums: no more than a few prompts' activations are
    in memory.

    Args:
        model: A loaded model.
        harmful: Prompts that show the behaviour: texts, rows with ``prompt``, or `tk.Prompts`.
        harmless: Prompts that do not.
        layers: Which layers; all if None.
        positions: Token positions, counted from each prompt's own end.
        site: Where the stream is read: ``"resid_pre"``, ``"resid_post"``, ``"resid_mid"``,
            ``"attn_out"`` or ``"mlp_out"``.
        chat: Whether texts are put into the chat template.
        rank: 1: the difference. k: the first k left singular vectors of the behaving prompts'
            activations, each less the others' mean: subspaces that hold it nearly, and more.
        progress: Called with (prompts done, prompts in all).

    Returns:
        `Directions`. Where the means do not differ (layer 0 under a template whose last token is
        always the same) there is none.

    Raises:
        SpecError: No prompts, a layer, position, site or rank that cannot be, or no difference
            anywhere.
    """
    parts = Parts(model)
    if site not in STREAM[1:]:
        known = ", ".join(STREAM[1:])
        raise SpecError(f"Directions are read in the stream ({known}), not at {site!r}.")
    chosen = checked_layers(layers, parts.n_layers)
    kinds = [
        as_prompts(model, given, kind, chat=chat)
        for given, kind in ((harmful, "harmful"), (harmless, "harmless"))
    ]
    at = checked_positions(positions, *kinds)
    if not 1 <= rank <= min(parts.d_model, len(kinds[0])):
        raise SpecError(
            f"rank is {rank}; it is at least 1, and at most the {len(kinds[0])} harmful prompts."
        )
    sums = [_Sums(rank > 1), _Sums(second=False)]
    _stream(model, kinds, sums, (site, chosen, at), progress)
    return _directions(model, kinds, sums, (chosen, at), site, rank)


def _stream(
    model: Any, kinds: Sequence[Prompts], sums: Sequence[_Sums],
    place: tuple[str, Sequence[int], Sequence[int]], progress: Progress | None,
) -> None:  # fmt: skip
    """Run a few prompts at a time into the sums of their kind."""
    total, done = sum(map(len, kinds)), 0
    for prompts, one in zip(kinds, sums, strict=True):
        for start in range(0, len(prompts), BATCH):
            some = prompts[start : start + BATCH]
            one.add(_read(model, some, *place))
            done += len(some)
            if progress:
                progress(done, total)


def _read(
    model: Any, prompts: Prompts, site: str, layers: Sequence[int], at: Sequence[int]
) -> np.ndarray:
    """``[layer, example, pos, d_model]``, positions in the order of ``at``."""
    where: Any = tuple(at)
    ds = capture(model, prompts, Site(site, pos=where))
    values = ds[site].sel(layer=list(layers)).values
    return values if values.ndim == 4 else values[:, :, None]


def _directions(
    model: Any, kinds: Sequence[Prompts], sums: Sequence[_Sums],
    grid: tuple[Sequence[int], Sequence[int]], site: str, rank: int,
) -> Directions:  # fmt: skip
    layers, at = grid
    difference = sums[0].mean - sums[1].mean
    norms = np.linalg.norm(difference, axis=-1)
    rows = np.full((*norms.shape, rank, difference.shape[-1]), np.nan)
    found: dict[tuple[int, int], Direction] = {}
    for i, layer in enumerate(layers):
        for j, pos in enumerate(at):
            if norms[i, j] <= NOTHING * np.linalg.norm(sums[0].mean[i, j]):
                continue
            vectors = difference[i, j][None]
            if rank > 1:
                vectors = _singular(sums[0], sums[1].mean[i, j], (i, j), rank, difference[i, j])
            where = Site(site, layer=layer, pos=pos)
            method = "difference of means" if rank == 1 else f"{rank} singular vectors"
            found[layer, pos] = one = Direction(torch.from_numpy(vectors), where, method)
            rows[i, j] = one.vector.numpy()
    if not found:
        raise SpecError("The two kinds of prompt have the same mean everywhere: no direction.")
    attrs = provenance(
        model, study="directions", site=site, rank=rank, harmful=len(kinds[0]),
        harmless=len(kinds[1]), harmful_hash=kinds[0].hash(), harmless_hash=kinds[1].hash(),
    )  # fmt: skip
    variables = {
        "direction": (("layer", "pos", "rank", "d_model"), rows, "unit vector"),
        "norm": (("layer", "pos"), norms, "activation"),
    }
    labels = {"layer": list(layers), "pos": list(at)}
    return Directions(found, build(variables, labels, attrs, axes=("rank", "d_model")))


def _singular(
    sums: _Sums, mean: np.ndarray, at: tuple[int, int], rank: int, difference: np.ndarray
) -> np.ndarray:
    """Left singular vectors of ``[d_model, example]``, from its product with itself."""
    own = sums.first[at]
    cross = np.outer(own, mean)
    product = sums.products[at] - cross - cross.T + sums.n * np.outer(mean, mean)
    values, vectors = np.linalg.eigh(product)
    if values[-rank] <= NOTHING**2 * values[-1]:
        raise SpecError(f"The prompts differ in fewer than {rank} directions; take a lower rank.")
    top = vectors[:, ::-1][:, :rank].T
    signs = np.where(top @ difference < 0, -1.0, 1.0)
    return top * signs[:, None]


def subspace(several: Iterable[Direction]) -> Direction:
    """One subspace spanned by several directions, orthonormalised.

    Raises:
        SpecError: There are none, or they depend on one another.
    """
    rows = [one.vector for one in several]
    if not rows:
        raise SpecError("A subspace needs at least one direction.")
    return Direction(torch.cat(rows), method="subspace")
