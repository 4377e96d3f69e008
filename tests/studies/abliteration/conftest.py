"""Models that may be edited, and prompts for them."""

import pytest

from tlkit.models.load import HookedTransformer

WORDS = ("a", "Mary", "John", "cat", "dog", "two", "one", "no", "yes", "that")


@pytest.fixture
def fresh():
    """A function from a family to a tiny model that nobody else has."""
    return lambda family: HookedTransformer.from_pretrained(f"tiny:{family}", device="cpu")


@pytest.fixture(scope="session")
def two_kinds():
    """Prompts of two surface forms."""
    return [f"How do I go to the store {w}?" for w in WORDS], [f"The cat sat {w}" for w in WORDS]
