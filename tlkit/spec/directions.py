"""Directions and subspaces of the residual stream."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tlkit.errors import SpecError
from tlkit.spec.sites import Site

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Direction:
    """A unit vector, or orthonormal rows that span a subspace, and where it was found.

    Args:
        vector: ``[d_model]`` or ``[rank, d_model]``; any length, it is normalised (rows are
            orthonormalised by QR).
        site: Where it was read, if it was.
        method: How it was found, in a word or two.

    Raises:
        SpecError: The vector is (nearly) zero, not finite, or its rows are dependent.
    """

    vector: "Tensor"
    site: Site | None = None
    method: str = "given"
    norm: float = 0.0

    def __post_init__(self) -> None:
        import torch

        rows = torch.as_tensor(self.vector).detach().float()
        rows = rows[None] if rows.ndim == 1 else rows
        if rows.ndim != 2 or not bool(torch.isfinite(rows).all()):
            raise SpecError("A direction is a finite vector [d_model], or rows [rank, d_model].")
        scale = float(rows.norm(dim=-1).max())
        if scale < 1e-8:
            raise SpecError("This direction has a norm of about 0, so it points nowhere.")
        basis, upper = torch.linalg.qr(rows.T)
        if float(upper.diagonal().abs().min()) < 1e-6 * scale:
            raise SpecError("The rows of this subspace depend on one another; drop some.")
        # QR leaves signs free; a steering vector must keep its own.
        object.__setattr__(self, "vector", basis.T * upper.diagonal().sign()[:, None])
        object.__setattr__(self, "norm", scale)

    @property
    def rank(self) -> int:
        """How many dimensions it spans."""
        return int(self.vector.shape[0])

    def cosine(self, other: "Direction") -> float:
        """The cosine between two rank-1 directions, -1 to 1."""
        return float((self.vector[0] * other.vector[0]).sum())
