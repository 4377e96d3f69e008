"""Generation under conditions, which makes one whole pass a token, against Hugging Face's own
generation with a cache and a forward hook.

Faults to plant: count positions within each step; patch again at every step; forget the new
tokens in "every".
"""

import pytest
import torch

from tlkit.engine.generating import generate, generated
from tlkit.errors import SpecError
from tlkit.models.bridge import unbridged
from tlkit.prompts.prompts import Prompts
from tlkit.spec.interventions import Ablate, Patch
from tlkit.spec.sites import Site
from tlkit.spec.sweeps import Condition

CLEAN = [5, 60, 61, 62, 9, 10]
CORRUPTED = [5, 60, 61, 72, 9, 10]
NEW = 6


def cached(model, ids, layer, before):
    """Hugging Face's greedy continuation with a cache; `before` may change what enters a block."""
    with unbridged(model) as hf, torch.no_grad():
        handle = hf.model.layers[layer].register_forward_pre_hook(before, with_kwargs=True)
        row = torch.tensor([ids])
        try:
            out = hf.generate(
                row, attention_mask=torch.ones_like(row), do_sample=False, max_new_tokens=NEW,
                eos_token_id=None, pad_token_id=2, use_cache=True,
            )  # fmt: skip
        finally:
            handle.remove()
    return out[0, len(ids) :].tolist()


def test_a_patch_of_the_prompt_is_what_the_cache_remembers(tiny_bridge):
    """With a cache, the steps after the prompt see one token: position 3 is none of theirs."""
    model = tiny_bridge("llama3")
    prompts = Prompts.from_tokens([CLEAN], [CORRUPTED])
    _, cache = model.run_with_cache(torch.tensor([CLEAN]))
    seen = []

    def before(module, args, kwargs):
        value = args[0] if args else kwargs["hidden_states"]
        seen.append(value.shape[1])
        if value.shape[1] > 1:
            value = value.clone()
            value[:, 3] = cache["resid_pre", 1][:, 3]
        return (value, *args[1:]), {k: v for k, v in kwargs.items() if k != "hidden_states"}

    patch = Condition("patch", (Patch(Site("resid_pre", layer=1, pos=3)),))
    found = generate(model, prompts, patch, on="corrupted", max_new_tokens=NEW)
    assert found == [cached(model, CORRUPTED, 1, before)]
    assert seen == [6] + [1] * (NEW - 1)
    assert found != generate(model, prompts, Condition("none"), on="corrupted", max_new_tokens=NEW)


def test_every_step_is_every_step_of_the_cache(tiny_bridge):
    model = tiny_bridge("llama3")
    prompts = Prompts.from_tokens([CLEAN])

    def before(module, args, kwargs):
        value = args[0] if args else kwargs["hidden_states"]
        kept = {k: v for k, v in kwargs.items() if k != "hidden_states"}
        return (torch.zeros_like(value), *args[1:]), kept

    off = Condition("off", (Ablate(Site("resid_pre", layer=1)),))
    found = generate(model, prompts, off, max_new_tokens=NEW, steps="every")
    assert found == [cached(model, CLEAN, 1, before)]


def test_tokens_come_one_by_one(tiny_bridge, monkeypatch):
    from tlkit.engine import generating

    model, passes = tiny_bridge("llama3"), []
    logits = generating.Reference.logits

    def counted(self, *args):
        passes.append(1)
        return logits(self, *args)

    monkeypatch.setattr(generating.Reference, "logits", counted)
    prompts = Prompts.from_tokens([CLEAN, CORRUPTED])
    stream = generated(model, prompts, Condition("none"), max_new_tokens=3)
    first = next(stream)
    assert len(passes) == 1
    whole = [first, *stream]
    assert whole == [
        (example, token)
        for example, row in enumerate(generate(model, prompts, Condition("none"), max_new_tokens=3))
        for token in row
    ]


def test_prompts_are_checked_before_anything(tiny_bridge):
    from tlkit.errors import SpecError

    with pytest.raises(SpecError, match="Prompts are made with"):
        generate(tiny_bridge("llama3"), None, Condition("none"))


def test_what_is_no_condition_is_told(tiny_bridge):
    model = tiny_bridge("llama3")
    prompts = Prompts.from_tokens([[5, 6, 7]])
    for given in (None, Ablate(Site("mlp_out", layer=1))):
        with pytest.raises(SpecError, match=r"A tk\.Condition says what is changed"):
            generate(model, prompts, given)
