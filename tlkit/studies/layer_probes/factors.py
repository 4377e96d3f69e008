"""CP (PARAFAC) factors of tokens x features x prompts, and what a new prompt has of them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tlkit.errors import SpecError

RIDGE = 1e-10
"""Added to the normal equations of a tensor scaled to 1: keeps a layer of zeros solvable."""
TOLERANCE = 1e-8
"""The decomposition ends early where its relative error falls by less in one round."""


@dataclass(frozen=True, eq=False)
class Factors:
    """What is learned from training prompts alone.

    A prompt's matrix X (token x feature) is compressed to X V and modelled as
    Σ_r c_r a_r b_r'; its c are its features.

    Attributes:
        basis: V ``[d_model, compressed]``, orthonormal.
        scale: The compressed training tensor's root mean square.
        tokens: A ``[token, rank]``.
        dims: B ``[compressed, rank]``.
    """

    basis: np.ndarray
    scale: float
    tokens: np.ndarray
    dims: np.ndarray

    def project(self, prompts: np.ndarray) -> np.ndarray:
        """Coordinates of prompts on the factors by least squares.

        c = G⁻¹ v with v_r = a_r' X b_r and G = (A'A) * (B'B): the minimiser of
        ‖X - Σ_r c_r a_r b_r'‖ (Kolda & Bader 2009, SIAM Review 51(3), eq. 3.4, with A and B
        held). Where components nearly coincide, the smallest of the minimisers.

        Args:
            prompts: ``[prompt, token, d_model]``, zeros where a prompt has no token.

        Returns:
            ``[prompt, rank]``.
        """
        x = _compressed(prompts, self.basis) / self.scale
        v = np.einsum("ktd,tr,dr->kr", x, self.tokens, self.dims, optimize=True)
        gram = (self.tokens.T @ self.tokens) * (self.dims.T @ self.dims)
        return v @ np.linalg.pinv(gram, rcond=1e-12, hermitian=True)


def check_rank(rank: int, tokens: int, compress: int, prompts: int) -> None:
    """Refuse a rank that no tensor of these sizes has.

    Raises:
        SpecError: The rank exceeds the product of the two smallest sizes, the most that a
            three-way tensor can need.
    """
    one, two, _ = sorted((tokens, compress, prompts))
    if rank > one * two:
        raise SpecError(
            f"rank is {rank}, but {tokens} tokens x {compress} dimensions x {prompts} training "
            f"prompts have a rank of at most {one * two}; take a smaller one."
        )


def learn(prompts: np.ndarray, *, rank: int, compress: int, iterations: int, seed: int) -> Factors:
    """Decompose training prompts (CP by alternating least squares, tensorly).

    Args:
        prompts: ``[prompt, token, d_model]``, zeros where a prompt has no token.
        rank: Number of components.
        compress: Directions of the activations that are kept: the largest of the SVD of all
            training tokens, not centred. Padding, being zeros, has no say in them.
        iterations: Most rounds of alternating least squares.
        seed: Draws where it starts.
    """
    return decompose(prompts, basis_of(prompts, compress), rank, iterations, seed)


def basis_of(prompts: np.ndarray, compress: int) -> np.ndarray:
    """The right singular vectors ``[d_model, compress]`` of all tokens, largest first."""
    from scipy.linalg import eigh
    from scipy.sparse.linalg import eigsh

    width = prompts.shape[-1]
    gram = np.zeros((width, width))
    for one in prompts:
        x = one.astype(np.float64)
        gram += x.T @ x
    keep = min(compress, width)
    if not gram.any():
        return np.eye(width)[:, :keep]
    if keep > width // 4:
        return np.asarray(eigh(gram)[1])[:, ::-1][:, :keep]
    # Wide models: a few vectors of a large matrix; the start is fixed, so the result is.
    values, vectors = eigsh(gram, k=keep, v0=np.ones(width))
    return np.asarray(vectors)[:, np.argsort(values)[::-1]]


def decompose(
    prompts: np.ndarray, basis: np.ndarray, rank: int, iterations: int, seed: int
) -> Factors:
    """Factors of prompts in a given basis (see `learn`)."""
    import tensorly
    import tensorly.decomposition

    library: Any = tensorly  # its names are made at run time
    x = _compressed(prompts, basis)
    scale = float(np.sqrt(np.mean(x**2)))
    if scale == 0:  # a layer that puts out nothing has no components, and every prompt none of them
        return Factors(basis, 1.0, np.zeros((x.shape[1], rank)), np.zeros((x.shape[2], rank)))
    tensor = np.ascontiguousarray((x / scale).transpose(1, 2, 0))
    start = (np.ones(rank), _start(tensor, rank, seed))
    with library.backend_context("numpy", local_threadsafe=True):
        found = library.decomposition.parafac(
            tensor, rank, n_iter_max=iterations, init=start, tol=TOLERANCE,
            l2_reg=RIDGE,
        )  # fmt: skip
    tokens, dims, _ = (np.asarray(one) for one in found[1])
    return Factors(basis, scale, tokens, dims)


def _start(tensor: np.ndarray, rank: int, seed: int) -> list[np.ndarray]:
    """Where the decomposition begins: each mode's leading singular vectors, rotated at random.

    Of 12 random tensors of rank 3 this found all, tensorly's uniform numbers 7.
    """
    rng, found = np.random.default_rng(seed), []
    for mode in range(3):
        unfolded = np.moveaxis(tensor, mode, 0).reshape(tensor.shape[mode], -1)
        leading = np.linalg.eigh(unfolded @ unfolded.T)[1][:, ::-1][:, :rank]
        rotation = np.linalg.qr(rng.normal(size=(leading.shape[1],) * 2))[0]
        more = rng.normal(size=(len(leading), rank - leading.shape[1]))  # a rank above this mode's
        found.append(np.hstack([leading @ rotation, more / np.sqrt(len(leading))]))
    return found


def _compressed(prompts: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """``[prompt, token, compressed]``, a prompt at a time, so that one is held in float64."""
    return np.stack([one.astype(np.float64) @ basis for one in prompts])
