"""Attention patterns against Hugging Face's own eager attention.

Faults to plant: read the scores; count layers in the order in which they were asked for.
"""

import numpy as np
import pytest
import torch

from tlkit.engine.patterns import patterns, patterns_under
from tlkit.errors import SpecError
from tlkit.models.tiny import tiny
from tlkit.prompts.prompts import Prompts
from tlkit.spec.attention import Knockout
from tlkit.spec.interventions import Patch
from tlkit.spec.sites import Site
from tlkit.spec.sweeps import Condition

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


@pytest.mark.parametrize("family", ["llama3", "gptj"])
def test_patterns_under_a_condition_are_those_of_plain_hooks(tiny_bridge, family):
    model = tiny_bridge(family)
    prompts = Prompts.from_tokens([IDS], [[0, 290, 12, 34, 90, 91, 7, 300, 41]])
    _, cache = model.run_with_cache(torch.tensor(prompts.clean))
    kept = {}

    def hook(value, hook):
        value = value.clone()
        value[:, 3] = cache["resid_pre", 1][:, 3]
        return value

    hooks = [("blocks.1.hook_resid_pre", hook)]
    hooks += [(f"blocks.{layer}.attn.hook_pattern",
               lambda value, hook, layer=layer: kept.update({layer: value[0].clone()}))
              for layer in (0, 2)]  # fmt: skip
    with torch.no_grad():
        model.run_with_hooks(torch.tensor(prompts.corrupted), fwd_hooks=hooks)
    condition = Condition("patched", (Patch(Site("resid_pre", layer=1, pos=3)),))
    found = patterns_under(model, prompts, condition, (0, 2), on="corrupted")
    for layer in (0, 2):
        np.testing.assert_allclose(found[layer], kept[layer], atol=2e-6)
    assert abs(found[2] - patterns(model, prompts.corrupted[0], [2])[2]).max() > 1e-3
    cut = Condition("cut", (Knockout(queries=(7,), keys=(3,), layers=(1,), heads=(2,)),))
    weights = patterns_under(model, prompts, cut, [1])[1]
    assert weights[2, 7, 3] == 0
    assert weights[1, 7, 3] > 0
    nowhere = Condition("nowhere", (Patch(Site("resid_pre", layer=1, pos=40)),))
    with pytest.raises(SpecError, match="no such position or span for 'nowhere'"):
        patterns_under(model, prompts, nowhere, [1], on="corrupted")
