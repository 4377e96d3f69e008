"""CP factors against tensors that one can make, and plain least squares.

Faults to plant: a Gram matrix that is added instead of multiplied; a basis of the smallest
directions; the basis or factors learned from test prompts too.
"""

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from tlkit.errors import SpecError
from tlkit.studies.layer_probes.factors import basis_of, check_rank, decompose, learn
from tlkit.studies.layer_probes.features import Making
from tlkit.studies.layer_probes.rows import folds_of, labelled

RANK = 3


def planted(rank=RANK, shape=(30, 6, 9)):
    """``[prompt, token, dim]`` of a known rank, with its factors (tokens, dims, prompts)."""
    rng = np.random.default_rng(5)
    prompts, tokens, dims = shape
    a, b, c = (rng.normal(size=(size, rank)) for size in (tokens, dims, prompts))
    return np.einsum("tr,dr,kr->ktd", a, b, c), (a, b, c)


def match(found, true):
    """Factor match score: 1 if components agree up to scale and order."""
    score = np.ones((RANK, RANK))
    for one, other in zip(found, true, strict=True):
        unit = one / np.linalg.norm(one, axis=0), other / np.linalg.norm(other, axis=0)
        score *= np.abs(unit[0].T @ unit[1])
    rows, columns = linear_sum_assignment(-score)
    return score[rows, columns].mean()


def test_a_planted_tensor_is_found_again():
    x, true = planted()
    scores = []
    for seed in range(4):
        found = learn(x, rank=RANK, compress=RANK, iterations=500, seed=seed)
        dims = found.basis @ found.dims  # back from the compressed directions
        scores.append(match((found.tokens, dims, found.project(x)), true))
    # Least squares in turns can end in a bad minimum; that is what several starts are for.
    assert sorted(scores)[1] > 0.999


def test_a_prompt_that_was_not_seen_has_the_coordinates_it_was_made_of():
    x, (_, _, c) = planted()
    found = learn(x[:20], rank=RANK, compress=RANK, iterations=500, seed=1)
    given = np.hstack([found.project(x[20:]), np.ones((10, 1))])
    left = c[20:] - given @ np.linalg.lstsq(given, c[20:], rcond=None)[0]
    assert np.abs(left).max() < 1e-3


def test_projection_is_least_squares():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(12, 5, 8))
    found = learn(x, rank=4, compress=6, iterations=20, seed=3)
    design = np.einsum("tr,dr->tdr", found.tokens, found.dims).reshape(-1, 4)
    new = rng.normal(size=(3, 5, 8))
    for row, coordinates in zip(new, found.project(new), strict=True):
        target = (row @ found.basis / found.scale).ravel()
        wanted = np.linalg.lstsq(design, target, rcond=None)[0]
        np.testing.assert_allclose(coordinates, wanted, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("width", [8, 40])  # whole and iterative eigenvectors
def test_the_basis_is_that_of_a_singular_value_decomposition(width):
    x = np.random.default_rng(2).normal(size=(9, 7, width)) * np.linspace(1, 3, width)
    found = basis_of(x, 5)
    vectors = np.linalg.svd(x.reshape(-1, width), full_matrices=False)[2][:5].T
    np.testing.assert_allclose(np.abs(found.T @ vectors), np.eye(5), atol=1e-6)


def test_a_seed_gives_the_same_factors_and_another_gives_others():
    x = np.random.default_rng(3).normal(size=(10, 4, 6))
    basis = basis_of(x, 4)
    one, same, other = (decompose(x, basis, 3, 5, seed) for seed in (0, 0, 1))
    assert np.array_equal(one.tokens, same.tokens)
    assert not np.allclose(one.tokens, other.tokens)


def test_a_layer_of_zeros_has_finite_features():
    found = learn(np.zeros((6, 3, 4)), rank=2, compress=3, iterations=5, seed=0)
    assert np.isfinite(found.project(np.zeros((6, 3, 4)))).all()


def test_test_prompts_do_not_shape_what_training_prompts_look_like():
    x = np.random.default_rng(4).normal(size=(20, 4, 6)).astype(np.float32)
    rows = labelled(
        [{"prompt": f"p{i}", "label": "ab"[i % 2]} for i in range(20)], "a"
    )  # fmt: skip
    folds = folds_of(rows, 4, 0)
    making = Making(rank=3, last_tokens=4, compress=4, iterations=5, seeds=(0,))
    before = list(making.splits(x, folds))
    for at, (_, test) in enumerate(folds):
        changed = x.copy()
        changed[test] = 100 * np.random.default_rng(9).normal(size=changed[test].shape)
        fold, _, (train, tested) = list(making.splits(changed, folds))[at]
        assert fold == at
        assert np.array_equal(train, before[at][2][0])  # bitwise: nothing of the test prompts
        assert not np.allclose(tested, before[at][2][1])
    joint = Making(rank=3, last_tokens=4, compress=4, iterations=5, seeds=(0,), inductive=False)
    seen = [split[2][0] for split in joint.splits(x, folds)]
    shaped = [split[2][0] for split in joint.splits(changed, folds)]
    assert not np.allclose(seen[-1], shaped[-1])  # and that is what transductive means


def test_a_rank_above_the_tensors_is_refused():
    check_rank(6, 2, 3, 50)
    with pytest.raises(SpecError, match="rank is 7, but 2 tokens x 3 dimensions x 50 training"):
        check_rank(7, 2, 3, 50)
