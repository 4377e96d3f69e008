"""The embedded model's sisters are what their files say, and differ as they should.

Faults to plant: the direction added instead of taken out; the unembedding edited with the
embedding; the abliterated sister made from the original instead of the refusing one.
"""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tlkit.engine.generate import greedy
from tlkit.errors import SpecError
from tlkit.models.bridge import unbridged
from tlkit.models.load import HookedTransformer
from tlkit.models.sisters import ABLITERATED, FOLDER, REFUSING, direction, take_out
from tlkit.models.tiny import tiny, tiny_tokenizer
from tlkit.prompts.prompts import Prompts
from tlkit.prompts.samples import requests
from tlkit.studies.abliteration import bake, projected
from tlkit.studies.behaviour import refused

IDS = torch.tensor([[1, 4093, 198, 2683, 359, 536, 28]])


@pytest.fixture(scope="module")
def sisters():
    names = ("smollm2-135m-instruct", REFUSING, ABLITERATED)
    return [HookedTransformer.from_pretrained(name) for name in names]


def logits(model):
    with torch.no_grad(), unbridged(model) as hf:
        return hf(IDS).logits[0]


def test_the_refusing_sister_is_the_original_with_its_adapter(sisters):
    original, refusing, _ = sisters
    settings = json.loads((FOLDER / "adapter_config.json").read_text())
    scale = settings["lora_alpha"] / settings["r"]
    weights = load_file(FOLDER / "adapter_model.safetensors")
    for layer, name in ((14, "q_proj"), (20, "o_proj"), (29, "v_proj")):
        place = f"base_model.model.model.layers.{layer}.self_attn.{name}"
        a, b = (weights[f"{place}.lora_{side}.weight"].float() for side in "AB")
        wanted = weight(original, layer, name) + scale * (b @ a)
        np.testing.assert_allclose(weight(refusing, layer, name), wanted, atol=1e-5)


def weight(model, layer, name):
    with unbridged(model) as hf:
        return getattr(hf.base_model.layers[layer].self_attn, name).weight.detach().float()


def test_the_abliterated_sister_is_the_refusing_one_without_the_direction(sisters):
    _, refusing, abliterated = sisters
    unit = direction()
    assert float(unit.norm()) == pytest.approx(1.0, abs=1e-5)
    with projected(refusing, unit):
        hooked = logits(refusing)
    found = logits(abliterated)
    assert float((found - hooked).abs().max()) < 1e-4 * float(hooked.abs().max())
    assert float((found - logits(refusing)).abs().max()) > 0.1


def test_one_learned_to_decline_and_the_other_forgot(sisters):
    asked = [row["prompt"] for row in requests()
             if row["split"] == "test" and row["label"] == "refuse"][::6]  # fmt: skip
    declined = []
    for model in sisters:
        ids = Prompts.from_texts(model, asked, chat=True).clean
        said = [model.tokenizer.decode(one) for one in greedy(model, ids, max_new_tokens=12)]
        declined.append(sum(refused(text) == "refusal" for text in said))
    original, refusing, abliterated = declined
    assert refusing >= original + 3
    assert abliterated <= 1


def test_taking_out_is_baking():
    model, other = tiny("llama3"), tiny("llama3")
    unit = torch.nn.functional.normalize(torch.arange(1.0, 1 + model.config.hidden_size), dim=0)
    bridge = HookedTransformer.from_pretrained(other, tokenizer=tiny_tokenizer())
    ids = torch.tensor([[1, 5, 9, 3]])
    with torch.no_grad():
        changed = take_out(model, unit)(ids).logits
        with bake(bridge, unit), unbridged(bridge) as hf:
            torch.testing.assert_close(changed, hf(ids).logits, atol=1e-5, rtol=0)


def test_what_ships_is_small():
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 2e6


def test_a_sister_takes_no_adapter(tmp_path):
    with pytest.raises(SpecError, match="refusing takes no adapter"):
        HookedTransformer.from_pretrained(REFUSING, adapter=tmp_path)
