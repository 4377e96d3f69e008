"""Estimates from gradients, held to finite differences and to Hugging Face's own graph."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

import tlkit as tk
from tlkit.errors import SpecError

CLEAN = [[11, 42, 7, 300, 5, 8], [80, 9, 120, 33]]
CORRUPTED = [[11, 42, 77, 300, 5, 8], [80, 9, 121, 34]]
PAIRS = tk.Prompts.from_tokens(CLEAN, CORRUPTED, [[7], [9]], [[11], [12]])
STREAMS = ["resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out", "mlp_pre", "mlp_post"]
HEADS = ["z", "q", "k", "v"]


@dataclass(frozen=True)
class Toward(tk.Patch):
    """Goes a part of the way to the source run's activation."""

    part: float = 0.0

    def edit(self, act, source):
        return act + self.part * (source - act)


def sweep(intervention, **more):
    axes = {"layer": range(3), "pos": range(1, 6), **more}
    if intervention.site.component in HEADS:
        axes["head"] = (0,)
    return tk.Sweep(intervention, **axes)


def slope(model, site, part=5e-3):
    """The derivative of the metric along the way to the source, by two exact runs."""
    ahead, behind = (
        tk.run(model, PAIRS, sweep(Toward(site, part=p)), tk.LogitDiff())["value"]
        for p in (part, -part)
    )
    return ((ahead - behind) / (2 * part)).values


@pytest.mark.parametrize("component", [*STREAMS, *HEADS])
def test_estimates_are_the_slope_on_the_way_to_the_source(tiny_bridge, component):
    site, model = tk.Site(component), tiny_bridge("llama3")
    ds = tk.run(model, PAIRS, sweep(tk.Patch(site)), tk.LogitDiff(), engine="gradient")
    expected = slope(model, site)
    assert np.nanmax(np.abs(expected)) > 1e-2
    np.testing.assert_allclose(ds["effect"].values, expected, atol=3e-4)


@pytest.mark.parametrize("family", ["gptj", "gemma3", "falcon"])
@pytest.mark.parametrize("component", ["attn_out", "mlp_out", "v"])
def test_families_with_other_blocks(tiny_bridge, family, component):
    site, model = tk.Site(component), tiny_bridge(family)
    ds = tk.run(model, PAIRS, sweep(tk.Patch(site)), tk.LogitDiff(), engine="gradient")
    np.testing.assert_allclose(ds["effect"].values, slope(model, site), atol=3e-4)


def test_gradients_of_embeddings_are_hugging_faces(tiny_bridge):
    from tlkit.models.tiny import tiny

    model, hf = tiny_bridge("llama"), tiny("llama")
    embed = hf.get_input_embeddings()
    ids, other = torch.tensor(CORRUPTED[:1]), torch.tensor(CLEAN[:1])
    embeddings = embed(ids).requires_grad_()
    logits = hf(inputs_embeds=embeddings).logits[0, -1]
    (gradient,) = torch.autograd.grad(logits[7] - logits[11], embeddings)
    by_hand = ((embed(other) - embeddings.detach()) * gradient).sum(-1)[0]
    swept = tk.Sweep(tk.Patch(tk.Site("embed")), pos=range(6))
    ds = tk.run(model, PAIRS[:1], swept, tk.LogitDiff(), engine="gradient")
    np.testing.assert_allclose(ds["effect"].values[0, :, 0], by_hand, atol=1e-5)


def test_each_metric_has_its_own_gradient_and_batches_do_not_matter(tiny_bridge):
    model, patch = tiny_bridge("gpt2"), tk.Patch(tk.Site("z"))
    metrics = [tk.AnswerProb(), tk.LogitDiff()]
    both = tk.run(model, PAIRS, sweep(patch), metrics, engine="gradient")
    small = tk.run(model, PAIRS, sweep(patch), metrics, engine="gradient", budget="20kB")
    np.testing.assert_allclose(both["value"], small["value"], atol=1e-6)
    for metric in metrics:
        alone = tk.run(model, PAIRS[1], sweep(patch), metric, engine="gradient")
        found = both["effect"].sel(metric=metric.name, example=1)
        np.testing.assert_allclose(found, alone["effect"].values[0, ..., 0], atol=1e-6)
    assert (both["clean"] == tk.run(model, PAIRS, sweep(patch), metrics)["clean"]).all()


def test_what_is_known_without_a_run_is_exact(tiny_bridge):
    swept = tk.Sweep(tk.Patch(tk.Site("resid_pre")), layer=(0, 1), pos=(0, 2, 3, 5))
    ds = tk.run(tiny_bridge("llama"), PAIRS, swept, tk.LogitDiff(), engine="gradient")
    # Layer 0: tokens differ at 2, and in the second pair at 3; below 2 nothing can change.
    assert ds["exact"].values.tolist() == [[True, False, False, True], [True, False, False, False]]
    assert (ds["effect"].sel(pos=0) == 0).all()
    assert ds["effect"].sel(pos=5, example=1).isnull().all()
    assert ds.attrs["engine"] == "gradient"


class Doubled(tk.Patch):
    def edit(self, act, source):
        return 2 * source


@pytest.mark.parametrize(
    ("intervention", "metric", "message"),
    [
        (tk.Ablate(tk.Site("z", layer=0)), tk.LogitDiff(), "Ablate is none"),
        (Doubled(tk.Site("z", layer=0)), tk.LogitDiff(), "Doubled is none"),
        (tk.Patch(tk.Site("pattern", layer=0)), tk.LogitDiff(), "not of pattern"),
        (tk.Patch(tk.Site("z", layer=0)), tk.KL(), "KL is at its minimum"),
        (tk.Patch(tk.Site("z", layer=0)), tk.AnswerRank(), "rank has no gradient"),
        (tk.Patch(tk.Site("z", layer=0)), lambda logits: 1.0, "has no gradient"),
    ],
)
@pytest.mark.parametrize("engine", ["gradient", "verified"])
def test_what_has_no_estimate_is_refused(tiny_bridge, engine, intervention, metric, message):
    swept = tk.Sweep(intervention, layer=(0,))
    with pytest.raises(SpecError, match=message):
        tk.run(tiny_bridge("llama"), PAIRS, swept, metric, engine=engine)


def test_given_interventions_are_refused(tiny_bridge):
    given = [tk.Ablate(tk.Site("mlp_out", layer=0))]
    swept = tk.Sweep(tk.Patch(tk.Site("z", layer=0)), pos=(2,), given=given)
    with pytest.raises(SpecError, match="plain base run"):
        tk.run(tiny_bridge("llama"), PAIRS, swept, tk.LogitDiff(), engine="gradient")


def test_a_site_that_nothing_depends_on_is_no_zero(tiny_bridge, monkeypatch):
    """A hook whose tensor leads nowhere must not pass for an effect of 0."""
    from tlkit.engine import gradient

    forward = gradient.GradientBackend._forward

    def detached(self, examples, places):
        streams, own, last = forward(self, examples, places)
        return {place: one.detach().requires_grad_() for place, one in streams.items()}, own, last

    monkeypatch.setattr(gradient.GradientBackend, "_forward", detached)
    with pytest.raises(tk.EngineError, match="nothing depends on z"):
        tk.run(
            tiny_bridge("llama"), PAIRS, sweep(tk.Patch(tk.Site("z"))), tk.LogitDiff(),
            engine="gradient",
        )  # fmt: skip
