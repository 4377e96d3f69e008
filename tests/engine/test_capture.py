"""Activations at named positions against plain hooks, Hugging Face's own states, and the twin."""

import numpy as np
import pytest
import torch

from tlkit.engine.capture import capture
from tlkit.errors import SpecError
from tlkit.models.bridge import unbridged
from tlkit.prompts.prompts import Prompts
from tlkit.spec.attention import Knockout, ScaleEdges
from tlkit.spec.interventions import Ablate, Patch, Steer
from tlkit.spec.sites import Site
from tlkit.spec.sweeps import Condition

CLEAN = [[0, 40, 41, 300, 17], [0, 290, 12, 33, 90, 91, 7], [0, 50, 60, 70, 80, 90]]
CORRUPTED = [[0, 44, 41, 300, 17], [0, 290, 99, 33, 90, 91, 7], [0, 50, 61, 70, 80, 90]]
SPANS = {"subject": [(1, 3), (2, 4), None], "verb": [(3, 4), (5, 6), (4, 5)]}
FAMILIES = ("gpt2", "gptj", "neox", "llama3", "mistral", "qwen3", "gemma3", "opt", "phi3", "falcon")


@pytest.fixture(scope="module")
def prompts():
    return Prompts.from_tokens(CLEAN, CORRUPTED, spans=SPANS)


def near(first, second, tolerance=2e-5):
    for name in first.data_vars:
        assert first[name].dims == second[name].dims
        np.testing.assert_allclose(first[name], second[name], atol=tolerance, err_msg=str(name))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_stream_is_hugging_faces_hidden_states(tiny_bridge, family, prompts):
    model = tiny_bridge(family)
    found = capture(model, prompts, Site("resid_pre", pos="end"))["resid_pre"]
    with unbridged(model) as hf, torch.no_grad():
        for example, ids in enumerate(CLEAN):
            hidden = hf(torch.tensor([ids]), output_hidden_states=True).hidden_states
            for layer in range(3):
                np.testing.assert_allclose(
                    found.values[layer, example], hidden[layer][0, -1], atol=2e-5
                )


CONDITIONS = {
    "knockout": Knockout(keys="subject"),
    "cut": Knockout(keys="verb", mode="-inf", layers=[0, 1], heads=[1]),
    "scaled": ScaleEdges(keys="verb", factor=2.0),
    "patched": Patch(Site("resid_post", layer=1, pos="verb"), source="corrupted"),
    "ablated": Ablate(Site("attn_out", layer=1, pos="verb")),
    "steered": Steer(Site("mlp_out", layer=0, pos=2), torch.ones(64), scale=3.0),
    "values": Ablate(Site("v", layer=1, pos="verb")),
}


@pytest.mark.parametrize("family", ("gpt2", "qwen3", "gemma3"))
@pytest.mark.parametrize("name", CONDITIONS)
def test_packed_states_under_a_condition_equal_hooked_ones(tiny_bridge, family, prompts, name):
    model, condition = tiny_bridge(family), Condition(name, (CONDITIONS[name],))
    sites = [Site("resid_post"), Site("attn_out"), Site("mlp_out"), Site("q"), Site("v")]
    sites += [Site("mlp_post"), Site("resid_mid")]
    packed = capture(model, prompts, sites, condition)
    slow = capture(model, prompts, sites, condition, engine="reference")
    assert packed.attrs["engine"] == "packed"
    near(packed, slow)
    base = capture(model, prompts, sites)
    assert float(abs(packed["resid_post"] - base["resid_post"]).max()) > 1e-3
    if name == "knockout":  # the last prompt has no such span
        assert np.isnan(packed["resid_post"].values[:, 2]).all()


def test_spans_positions_heads_and_layers_narrow_what_is_read(tiny_bridge, prompts):
    model = tiny_bridge("llama3")
    sites = {"span": Site("resid_post", pos="subject"), "one": Site("z", layer=1, head=2, pos=-1)}
    found = capture(model, prompts, sites)
    assert found["span"].dims == ("layer", "example", "pos", "d_model")
    assert found["one"].dims == ("layer", "example", "pos", "d_head")
    whole = capture(model, prompts, [Site("resid_post"), Site("z")])
    np.testing.assert_array_equal(found["span"][:, 1, :2], whole["resid_post"][:, 1, 2:4])
    assert np.isnan(found["span"].values[:, 2]).all()  # no such span
    np.testing.assert_array_equal(found["one"][1, 0, 0], whole["z"][1, 0, 4, 2])
    assert np.isnan(found["one"].values[0]).all()  # another layer
    assert capture(model, prompts, Site("k", pos="end"))["k"].dims == (
        "layer", "example", "kv_head", "d_head",
    )  # fmt: skip


def test_a_small_budget_and_the_other_run_give_the_same(tiny_bridge, prompts):
    model, site = tiny_bridge("llama"), Site("resid_post", pos="end")
    condition = Condition("cut", (Knockout(keys="verb"),))
    whole = capture(model, prompts, site, condition, on="corrupted")
    steps = []
    parts = capture(
        model, prompts, site, condition, on="corrupted", budget=1,
        progress=lambda done, total: steps.append((done, total)),
    )  # fmt: skip
    near(whole, parts)
    assert steps == [(1, 3), (2, 3), (3, 3)]


def test_without_an_edge_to_cut_nothing_moves_at_all(tiny_bridge, prompts):
    model, site = tiny_bridge("llama"), Site("resid_post")
    none_left = Condition("none", (Knockout(keys=-1),))  # no position follows the last
    np.testing.assert_array_equal(
        capture(model, prompts, site, none_left)["resid_post"],
        capture(model, prompts, site)["resid_post"],
    )
    once, twice = (
        capture(model, prompts, site, Condition("cut", (Knockout(keys="verb"),) * times))
        for times in (1, 2)
    )
    np.testing.assert_array_equal(once["resid_post"], twice["resid_post"])


@pytest.mark.parametrize(
    ("sites", "message"),
    [
        ([], "needs a site"),
        (Site("pattern"), "'pattern' has none"),
        ([Site("z"), Site("z", pos=1)], "mapping of names"),
        (Site("z", layer=3), "layers 0 to 2"),
        (Site("k", head=2), "heads 0 to 1"),
        (Site("z", pos="object"), "no span 'object'"),
    ],
)
def test_what_cannot_be_read_is_refused(tiny_bridge, prompts, sites, message):
    with pytest.raises(SpecError, match=message):
        capture(tiny_bridge("llama3"), prompts, sites)


def test_what_only_the_twin_reads_is_said(tiny_bridge, prompts):
    model, condition = tiny_bridge("llama"), Condition("cut", (Knockout(keys="verb"),))
    with pytest.raises(SpecError, match="'z' under a condition is read by engine='reference'"):
        capture(model, prompts, Site("z"), condition)
    assert capture(model, prompts, Site("z"), condition, engine="reference")["z"].notnull().any()
    with pytest.raises(SpecError, match="no engine 'fast'"):
        capture(model, prompts, Site("z"), engine="fast")
    with pytest.raises(SpecError, match="no site 'resid_mid'"):
        capture(tiny_bridge("gptj"), prompts, Site("resid_mid"))
