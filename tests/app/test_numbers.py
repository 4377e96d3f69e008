"""Every number that the explorer shows, against `tk.run` and against plain hooks.

Faults to plant: measure against the other run; list the tokens of the base run as those after;
leave the first change out of the sum; read attention of the layer below.
"""

import numpy as np
import pytest
import torch

from tlkit.engine.generating import generate
from tlkit.engine.run import run
from tlkit.models.text import token_labels
from tlkit.spec.attention import Knockout
from tlkit.spec.interventions import Ablate, Patch
from tlkit.spec.metrics import KL, AnswerProb, LogitDiff
from tlkit.spec.sites import Site
from tlkit.spec.sweeps import Condition, Sweep
from tlkit.studies import patching

METRICS = {"logit_diff": LogitDiff(), "answer_prob": AnswerProb(), "kl": KL()}


def drawn(pieces, exact=True):
    """The map that pieces draw: (layer, column) to effect."""
    found = {}
    for piece in pieces:
        if piece["kind"] == "map" and piece["exact"] == exact:
            found |= {(layer, at): value for layer, at, value in piece["cells"]}
    return found


def whole(prompts, model, changes, metric, on):
    """`tk.run` under changes: the dataset of one cell."""
    sweep = Sweep.over([Condition("asked", tuple(changes))])
    return run(model, prompts, sweep, METRICS[metric], on=on).squeeze()


@pytest.mark.parametrize("example", [0, 1])
@pytest.mark.parametrize(
    ("family", "site", "metric", "direction"),
    [
        ("llama3", "resid_pre", "logit_diff", "denoise"),
        ("llama3", "z", "kl", "noise"),
        ("llama3", "v", "answer_prob", "denoise"),
        ("gptj", "mlp_out", "answer_prob", "noise"),
        ("gemma3", "attn_out", "kl", "denoise"),
    ],
)
def test_the_map_is_that_of_run(talk, family, site, metric, direction, example):
    say = talk(family, site=site, metric=metric, direction=direction, example=example)
    frame = say("start")["frame"]
    prompts = say.kernel.state.prompts
    on = "corrupted" if direction == "denoise" else "clean"
    wanted = patching.run(say.model, prompts, site, METRICS[metric], on=on)
    effect = wanted["effect"].values[0, ..., 0]
    assert effect.shape == (frame["layers"], frame["columns"])
    found = drawn(say.rest())
    assert set(found) == set(np.ndindex(effect.shape))
    most = abs(effect).max()  # small, where it is a probability of a tiny model
    assert most > 1e-5
    for cell, value in found.items():
        assert value == pytest.approx(effect[cell], abs=float(min(1e-5, 1e-3 * most)))
    for side in ("clean", "corrupted"):
        assert frame[side] == pytest.approx(float(wanted[side].squeeze()), abs=1e-5)
    assert frame["before"] == frame[on]


def test_estimates_come_first_and_are_marked(talk):
    say = talk(site="resid_pre")
    say("start")
    pieces = say.rest()
    kinds = [piece["exact"] for piece in pieces]
    assert kinds[:2] == [True, False]  # cells that change nothing are known without a run
    assert all(kinds[2:])
    assert all(at < 10 for _, at, _ in pieces[0]["cells"][:10])
    found = drawn(pieces, exact=False)
    prompts = say.kernel.state.prompts
    wanted = patching.run(say.model, prompts, "resid_pre", engine="gradient")["effect"]
    for (layer, pos), value in found.items():
        own = float(wanted.sel(layer=layer, pos=pos).squeeze())
        assert value == pytest.approx(own, abs=1e-5)
    exact = drawn(pieces)
    assert max(abs(exact[cell] - found[cell]) for cell in found) > 1e-3


def test_what_has_no_gradient_is_exact_at_once(talk):
    say = talk(metric="kl")
    say("start")
    assert all(piece["exact"] for piece in say.rest())


@pytest.mark.parametrize("metric", list(METRICS))
@pytest.mark.parametrize("direction", ["denoise", "noise"])
def test_a_click_gives_what_run_and_plain_hooks_give(talk, metric, direction):
    say = talk(metric=metric, direction=direction)
    say("start")
    found = say("pick", layer=1, at=10)["picked"]
    prompts, model = say.kernel.state.prompts, say.model
    on, source = ("corrupted", "clean") if direction == "denoise" else ("clean", "corrupted")
    own = whole(prompts, model, [Patch(Site("resid_pre", layer=1, pos=10), source)], metric, on)
    for name, key in (("value", "value"), ("effect", "effect"), ("base", "before")):
        assert found[key] == pytest.approx(float(own[name]), abs=1e-5)
    if np.isfinite(own["recovered"]):
        assert found["recovered"] == pytest.approx(float(own["recovered"]), abs=1e-4)
    ids, other = (torch.tensor(prompts.ids(side)) for side in (on, source))
    _, cache = model.run_with_cache(other)

    def hook(value, hook):
        value = value.clone()
        value[:, 10] = cache["resid_pre", 1][:, 10]
        return value

    with torch.no_grad():
        before = model(ids)[0, -1].softmax(-1)
        hooks = [("blocks.1.hook_resid_pre", hook)]
        after = model.run_with_hooks(ids, fwd_hooks=hooks)[0, -1].softmax(-1)
    for side, here in (("before", before), ("after", after)):
        best = here.topk(10)
        rows = found["top"][side]
        assert [row["p"] for row in rows] == pytest.approx(best.values.tolist(), abs=1e-5)
        assert [row["token"] for row in rows] == token_labels(model, best.indices.tolist())
    assert abs(before - after).max() > 1e-4


def test_a_set_stands_against_the_sum_of_its_parts(talk):
    say = talk()
    say("start")
    first = say("pick", layer=0, at=10)["picked"]
    assert first["sum"] is None
    say("pick", layer=1, at=14, add=True)
    say("cut", layer=1, head=2, query=14, key=10)
    found = say("ablate", layer=2, head=3)["picked"]
    prompts = say.kernel.state.prompts
    changes = [
        Patch(Site("resid_pre", layer=0, pos=10)),
        Patch(Site("resid_pre", layer=1, pos=14)),
        Knockout(queries=(14,), keys=(10,), layers=(1,), heads=(2,)),
        Ablate(Site("z", layer=2, head=3)),
    ]
    alone = [float(whole(prompts, say.model, [one], "logit_diff", "corrupted")["effect"])
             for one in changes]  # fmt: skip
    joint = float(whole(prompts, say.model, changes, "logit_diff", "corrupted")["effect"])
    assert found["effects"] == pytest.approx(alone, abs=1e-5)
    assert found["sum"] == pytest.approx(sum(alone), abs=1e-5)
    assert found["effect"] == pytest.approx(joint, abs=1e-5)
    assert abs(joint - sum(alone)) > 1e-3
    assert [one["at"] for one in found["changes"]] == [10, 14, None, None]
    without = say("pick", layer=1, at=14, add=True)["picked"]  # a second time takes it out
    assert [one["at"] for one in without["changes"]] == [10, None, None]


@pytest.mark.parametrize("family", ["llama3", "gptj"])
def test_attention_is_that_of_plain_hooks(talk, family):
    say = talk(family)
    say("start")
    say("pick", layer=1, at=10)
    seen = next(piece for piece in say.rest() if piece["kind"] == "attention")
    assert (seen["layer"], seen["query"]) == (1, 10)
    prompts, model, kept = say.kernel.state.prompts, say.model, {}
    _, cache = model.run_with_cache(torch.tensor(prompts.clean))

    def hook(value, hook):
        value = value.clone()
        value[:, 10] = cache["resid_pre", 1][:, 10]
        return value

    def keep(name):
        return ("blocks.1.attn.hook_pattern", lambda value, hook: kept.update({name: value[0]}))

    ids = torch.tensor(prompts.corrupted)
    with torch.no_grad():
        model.run_with_hooks(ids, fwd_hooks=[keep("before")])
        model.run_with_hooks(ids, fwd_hooks=[("blocks.1.hook_resid_pre", hook), keep("after")])
    for side in ("before", "after"):
        np.testing.assert_allclose(seen[side], kept[side][:, 10, :11], atol=2e-6)
    assert np.abs(np.subtract(seen["before"], seen["after"])).max() > 1e-3


@pytest.mark.parametrize("family", ["llama3", "gptj"])
def test_a_cut_edge_has_no_weight(talk, family):
    """GPT-J's pattern cannot be written: what its hook shows is the one before the cut."""
    say = talk(family)
    say("start")
    say("cut", layer=2, head=1, query=14, key=10)
    seen = next(piece for piece in say.rest() if piece["kind"] == "attention")
    assert (seen["layer"], seen["query"]) == (2, 14)
    before, after = np.array(seen["before"]), np.array(seen["after"])
    assert before[1, 10] > 1e-4
    assert after[1, 10] == 0
    same = np.ones_like(before, dtype=bool)
    same[1, 10] = False
    np.testing.assert_allclose(after[same], before[same], atol=2e-6)


def test_the_continuation_is_that_of_generate(talk):
    say = talk()
    say("start")
    say("pick", layer=0, at=10)
    texts = [piece for piece in say.rest() if piece["kind"] == "text"]
    prompts, model = say.kernel.state.prompts, say.model
    for side, condition in (("after", say.kernel.state.condition), ("before", Condition("none"))):
        ids = generate(model, prompts, condition, on="corrupted", max_new_tokens=8)[0]
        own = [piece for piece in texts if piece["side"] == side]
        assert [piece["done"] for piece in own] == [False] * len(ids) + [True]
        assert own[-1]["text"] == model.tokenizer.decode(ids)
        assert own[0]["text"] == model.tokenizer.decode(ids[:1])
    say("pick", layer=1, at=10)
    again = [piece for piece in say.rest() if piece["kind"] == "text" and piece["side"] == "before"]
    assert [piece["done"] for piece in again] == [True]  # that of the base run is kept
