"""Continuations under ablation, against a plain Hugging Face loop that hooks every step.

Faults to plant: the ablation left off in decoding steps; means over a growing sequence; hooks left
on the model; empty continuations counted as a behaviour that is absent.
"""

import numpy as np
import pytest
import torch

from tlkit.models.load import HookedTransformer
from tlkit.models.tiny import tiny
from tlkit.models.tiny_text import EOS_ID
from tlkit.prompts.prompts import Prompts
from tlkit.studies import ablation

TEXTS = ["The cat sat on the mat", "Who wrote the book?", "Count to five", "A dog"]
NEW = 6
WRITES = {"attn_out": ["attn_out"], "mlp_out": ["mlp_out"], "block": ["attn_out", "mlp_out"]}


def says_a(text):
    return "a" in text


def study(model, value, new=NEW, **more):
    pooled = value != "per position"
    return ablation.run(
        model, TEXTS, value=value if pooled else "mean", pooled=pooled, metrics="kl",
        behaviour=says_a, max_new_tokens=new, **more,
    )  # fmt: skip


def text_of(model, ids):
    # An array of texts does not keep NULs at an end, which random models like to say.
    return model.tokenizer.decode(ids, skip_special_tokens=True).rstrip("\0")


def mean(plain, component, layer, rows, pooled):
    acts = [plain.acts(ids, component, layer).double().numpy() for ids in rows]
    if pooled:
        return np.concatenate(acts).mean(0)
    longest = max(map(len, acts))
    return np.stack([np.mean([a[p] for a in acts if len(a) > p], 0) for p in range(longest)])


@pytest.mark.parametrize(
    ("family", "value"),
    [("llama3", "zero"), ("llama3", "mean"), ("llama3", "per position"), ("gptj", "mean"),
     ("gpt2", "zero"), ("opt", "mean"), ("gemma3", "mean"), ("gemma3", "zero")],
)  # fmt: skip
def test_every_step_is_ablated_as_in_a_plain_loop(tiny_bridge, plain_model, family, value):
    model, plain = tiny_bridge(family), plain_model(family)
    rows = Prompts.from_texts(model, TEXTS).clean
    ds = study(model, value)
    changed = 0
    for i, ids in enumerate(rows):
        base = text_of(model, plain.continued(ids, {}, NEW, EOS_ID))
        assert str(ds["continuation_base"].values[0, i]) == base
        for site, names in WRITES.items():
            for layer in range(3):
                changes = {
                    (name, layer): plain.put(
                        0.0
                        if value == "zero"
                        else mean(plain, name, layer, rows, value != "per position")
                    )
                    for name in names
                }
                new = plain.continued(ids, changes, NEW, EOS_ID)
                text = text_of(model, new)
                found = ds.sel(site=site, layer=layer).isel(model=0, example=i)
                assert str(found["continuation"].item()) == text
                wanted = float("a" in text) if text.strip() else np.nan
                np.testing.assert_equal(found["behaviour"].item(), wanted)
                changed += text != base
    assert changed > 5


@pytest.mark.parametrize("family", ["phi", "mistral", "falcon", "mixtral"])
def test_batches_say_what_the_slow_twin_says(tiny_bridge, family):
    fast, slow = (study(tiny_bridge(family), "mean", 3, engine=e) for e in ("packed", "reference"))
    same = fast["continuation"].values == slow["continuation"].values
    assert same.all()


def test_resampled_steps_keep_to_one_other_prompt(tiny_bridge, plain_model):
    model, plain = tiny_bridge("llama3"), plain_model("llama3")
    rows = Prompts.from_texts(model, TEXTS).clean
    found = study(model, "resample", components="mlp_out", seed=3)["continuation"]
    for i, ids in enumerate(rows):
        texts = found.isel(model=0, site=0, example=i).values.tolist()
        others = []
        for j, other in enumerate(rows):
            changes = [
                {("mlp_out", layer): plain.put(plain.acts(other, "mlp_out", layer))}
                for layer in range(3)
            ]
            said = [text_of(model, plain.continued(ids, c, NEW, EOS_ID)) for c in changes]
            if said == texts:
                others.append(j)
        assert len(others) == 1
        assert others[0] != i


def test_nothing_said_counts_neither_way_and_nothing_is_left_behind(tiny_bridge):
    from tlkit.models.bridge import unbridged

    hf = tiny("gpt2")
    hf.lm_head.weight.zero_()
    hf.lm_head.weight[EOS_ID] = hf.transformer.ln_f.bias  # at once, whatever comes
    hf.transformer.ln_f.weight.zero_()
    model = HookedTransformer.from_pretrained(hf, tokenizer=tiny_bridge("gpt2").tokenizer)
    with unbridged(model) as modules:
        before = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in modules.modules()]
    ds = study(model, "zero")
    assert set(ds["continuation"].values.ravel().tolist()) == {""}
    assert np.isnan(ds["behaviour"]).all()
    assert np.isnan(ds["behaviour_base"]).all()
    with unbridged(model) as modules:
        after = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in modules.modules()]
    assert after == before


def test_several_behaviours_and_their_rates(tiny_bridge):
    behaviours = {"a": says_a, "long": lambda text: len(text) > 8}
    ds = ablation.run(
        tiny_bridge("llama3"), TEXTS, behaviour=behaviours, max_new_tokens=NEW, metrics="kl"
    )
    assert ds["detector"].values.tolist() == ["a", "long"]
    assert ds["behaviour"].dims == ("model", "site", "layer", "detector", "example")
    texts = ds["continuation"].values
    for name, judge in behaviours.items():
        wanted = np.array([judge(t) if t.strip() else np.nan for t in texts.ravel().tolist()])
        found = ds["behaviour"].sel(detector=name).values.ravel()
        np.testing.assert_array_equal(found, wanted.astype(float))
    change = ablation.by_layer(ds, "behaviour")["effect"]
    rate = ablation.by_layer(ds, "behaviour", raw=True)["effect"]
    np.testing.assert_allclose(rate - ds["behaviour_base"], change)
    assert set(np.unique(rate.values[~np.isnan(rate.values)])) <= {0.0, 1.0}


def test_means_while_generating_are_of_the_prompts_and_not_of_what_is_added(
    tiny_bridge, plain_model
):
    """`tk.generate` took the mean over the one sequence that it was continuing."""
    from tlkit.engine.generating import generate
    from tlkit.spec.interventions import Ablate
    from tlkit.spec.sites import Site
    from tlkit.spec.sweeps import Condition

    model, plain = tiny_bridge("llama3"), plain_model("llama3")
    prompts = Prompts.from_texts(model, TEXTS)
    for layer in range(3):
        condition = Condition("mean", (Ablate(Site("attn_out", layer=layer), "mean"),))
        found = generate(model, prompts, condition, max_new_tokens=NEW, steps="every")
        put = plain.put(mean(plain, "attn_out", layer, prompts.clean, True))
        wanted = [
            plain.continued(ids, {("attn_out", layer): put}, NEW, EOS_ID) for ids in prompts.clean
        ]
        assert found == wanted
    assert isinstance(model, torch.nn.Module)
