"""Prompts that every test of the engines uses, for any model."""

import functools

import pytest
import torch

from tlkit.checks.samples import Projection, sample_pairs
from tlkit.models.bridge import Parts
from tlkit.prompts.prompts import Prompts


@pytest.fixture(scope="session")
def ragged():
    """A function from a model to three pairs of 12, 9 and 14 tokens, differing from 3, 0 and 7."""
    return functools.cache(lambda model: sample_pairs(Parts(model), seed=0))


@pytest.fixture(scope="session")
def gapped():
    """Pairs of unequal length: 9 against 7 tokens, 6 against 8, and one of equal length."""
    clean = [[5, 60, 61, 62, 63, 9, 10, 11, 12], [5, 70, 71, 9, 10, 11], [5, 80, 81, 9, 10]]
    corrupted = [[5, 65, 66, 9, 10, 11, 12], [5, 75, 76, 77, 78, 9, 10, 11], [5, 80, 83, 9, 10]]
    return Prompts.from_tokens(clean, corrupted, [[7], [8], [9]], [[17], [18], [19]])


@pytest.fixture(scope="session")
def projection():
    """A metric that every logit moves."""
    return Projection(512)


@pytest.fixture(scope="session")
def direction():
    """A random direction of the tiny models' stream."""
    return torch.randn(64, generator=torch.Generator().manual_seed(3))
