"""Attention patterns against Hugging Face's own eager attention.

Faults to plant: read the scores; count layers in the order in which they were asked for.
"""

import numpy as np
import pytest
import torch

from tlkit.engine.patterns import patterns
from tlkit.errors import SpecError
from tlkit.models.tiny import tiny

IDS = [0, 290, 12, 33, 90, 91, 7, 300, 41]
FAMILIES = ("gpt2", "gptj", "neox", "llama3", "mistral", "qwen3", "gemma2", "gemma3", "opt", "phi3")


@pytest.mark.parametrize("family", [*FAMILIES, "falcon", "bloom"])
def test_patterns_are_hugging_faces(tiny_bridge, family):
    plain = tiny(family)  # the same weights, without hooks, attending eagerly
    with torch.no_grad():
        wanted = plain(torch.tensor([IDS]), output_attentions=True).attentions
    found = patterns(tiny_bridge(family), IDS, (2, 0))
    assert set(found) == {0, 2}
    for layer in (0, 2):
        assert found[layer].dtype == np.float32
        np.testing.assert_allclose(found[layer], wanted[layer][0], atol=2e-6)
        np.testing.assert_allclose(found[layer].sum(-1), 1, atol=1e-5)


def test_one_token_attends_to_itself(tiny_bridge):
    found = patterns(tiny_bridge("llama3"), (5,), [1])
    np.testing.assert_array_equal(found[1], np.ones((4, 1, 1), dtype=np.float32))


def test_what_is_not_there_is_refused(tiny_bridge):
    for layer in (3, -1):
        with pytest.raises(SpecError, match=f"There is no layer {layer}; this model has 0 to 2"):
            patterns(tiny_bridge("llama3"), IDS, [0, layer])
    with pytest.raises(SpecError, match="at least one token id"):
        patterns(tiny_bridge("llama3"), [], [0])
