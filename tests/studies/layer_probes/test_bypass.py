"""Skipped layers against plain hooks on Hugging Face's blocks, without a cache.

Faults to plant: only the prompt's pass is changed; the least sure layers are skipped; a hook stays.
"""

import numpy as np
import pytest
import torch

from tlkit.engine.generate import greedy
from tlkit.engine.skipping import skipping
from tlkit.errors import SpecError
from tlkit.models.bridge import Parts, unbridged
from tlkit.models.tiny import FAMILIES, tiny
from tlkit.prompts.prompts import Prompts
from tlkit.studies import layer_probes
from tlkit.studies.layer_probes.bypass import chosen_layers
from tlkit.studies.layer_probes.features import Making

ROWS = [
    {"prompt": f"{'Who is the king of' if i % 2 else 'Count the'} {name}", "label": str(i % 2)}
    for i, name in enumerate(["cats", "dogs", "hens", "owls", "bees", "ants", "cows", "pigs"] * 2)
]  # fmt: skip
NEW = 6
LAST = {"making": Making("last"), "positive": "1", "max_new_tokens": NEW}


def by_hooks(family, ids, layers):
    """A continuation by the raw model with its blocks' outputs replaced, all of it each time."""
    model = tiny(family)
    blocks = next(
        module for module in model.modules()
        if isinstance(module, torch.nn.ModuleList) and len(module) == 3
    )  # fmt: skip

    def replace(_, args, kwargs, out):
        stream = args[0] if args else kwargs["hidden_states"]
        return (stream, *out[1:]) if isinstance(out, tuple) else stream

    for layer in layers:
        blocks[layer].register_forward_hook(replace, with_kwargs=True)
    row = list(ids)
    for _ in range(NEW):
        with torch.no_grad():
            row.append(int(model(torch.tensor([row]), use_cache=False).logits[0, -1].argmax()))
    return row[len(ids) :]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("layers", [(0,), (1, 2)])
def test_skipping_is_what_hooks_on_the_raw_model_do(tiny_bridge, family, layers):
    model, ids = tiny_bridge(family), [0, 40, 41, 7, 300, 12]
    plain = greedy(model, [ids], max_new_tokens=NEW)
    with skipping(Parts(model), layers):
        found = greedy(model, [ids], max_new_tokens=NEW)
    assert found[0] == by_hooks(family, ids, layers)
    assert greedy(model, [ids], max_new_tokens=NEW) == plain  # nothing stays behind


def test_prompts_skip_the_layers_that_their_probes_name(tiny_bridge):
    model = tiny_bridge("llama3")
    ds = layer_probes.bypass(model, ROWS[4:], ROWS[:4], threshold=0.5, most=2, **LAST)
    prompts = Prompts.from_texts(model, [row["prompt"] for row in ROWS[:4]])
    skipped, sure = ds["skipped"].values, ds["probability"].values
    assert not skipped[0].any()
    assert (skipped[1].sum(0) == np.minimum((sure > 0.5).sum(0), 2)).all()
    assert (skipped[2].sum(0) == skipped[1].sum(0)).all()
    assert skipped[1].any()
    stop = model.tokenizer.eos_token_id
    for i, ids in enumerate(prompts.clean):
        for condition in range(3):
            layers = tuple(np.flatnonzero(skipped[condition, :, i]))
            new = by_hooks("llama3", ids, layers)
            new = new[: new.index(stop)] if stop in new else new
            wanted = model.tokenizer.decode(new, skip_special_tokens=True)
            assert ds["text"].values[condition, i] == wanted
    same = ds["text"].values == ds["text"].values[0]
    of = ds["label"].values == "0"
    assert ds["unchanged"].sel(group="0").values == pytest.approx(same[:, of].mean(1))


def test_probabilities_are_those_of_a_pipeline_on_last_tokens(tiny_bridge):
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = tiny_bridge("gpt2")

    def last(rows):
        with torch.no_grad(), unbridged(model) as hf:
            ids = Prompts.from_texts(model, [row["prompt"] for row in rows]).clean
            return np.stack([
                hf(torch.tensor([list(row)]), output_hidden_states=True).hidden_states[1][0, -1]
                for row in ids
            ]).astype(np.float64)  # fmt: skip

    probe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000))
    probe.fit(last(ROWS[4:]), [row["label"] == "1" for row in ROWS[4:]])
    ds = layer_probes.bypass(model, ROWS[4:], ROWS[:4], **LAST)
    wanted = probe.predict_proba(last(ROWS[:4]))[:, 1]
    np.testing.assert_allclose(ds["probability"].values[0], wanted, atol=1e-3)


def test_shares_count_outcomes_by_the_users_own_judge(tiny_bridge):
    judged = []

    def judge(text):
        judged.append(text)
        return "odd" if len(judged) % 2 else "refusal"

    ds = layer_probes.bypass(tiny_bridge("llama3"), ROWS[4:], ROWS[:4], behaviour=judge, **LAST)
    assert ds["kind"].values.tolist() == ["refusal", "answer", "empty", "garbled", "odd"]
    np.testing.assert_allclose(ds["share"].sum("kind"), 1.0)
    assert ds["outcome"].values[0].tolist() == ["odd", "refusal"] * 2
    assert ds["share"].sel(condition="plain", group="0", kind="odd") == 1.0


def test_the_surest_layers_are_chosen():
    sure = np.array([[0.6, 0.1], [0.9, 0.5], [0.7, 0.2], [0.4, 0.3]])
    none, surest, drawn = chosen_layers(sure, 0.5, 2, seed=0)
    assert none == [(), ()]
    assert surest == [(1, 2), ()]
    assert [len(one) for one in drawn] == [2, 0]
    spread = {
        chosen_layers(np.ones((4, 1)), 0.5, 1, seed)[2][0] for seed in range(40)
    }  # fmt: skip
    assert spread == {(0,), (1,), (2,), (3,)}


def test_bad_requests_are_refused(tiny_bridge):
    for new, more, message in [
        ([], {}, "no prompts to continue"),
        ([3], {}, "Prompt 0 is no text"),
        (["x"], {"threshold": 2}, "between 0 and 1"),
        (["x"], {"most": 0}, "at least one layer"),
        (["x"], {"positive": "9"}, "No prompt is labelled '9'"),
    ]:
        with pytest.raises(SpecError, match=message):
            layer_probes.bypass(None, ROWS, new, **{**LAST, **more})
    with pytest.raises(SpecError, match="no block 3 to skip"), skipping(
        Parts(tiny_bridge("gpt2")), [3]
    ):  # fmt: skip
        pass
