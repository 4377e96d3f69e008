"""What must hold whatever the weights are: identities, and interventions as edits of weights."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from tlkit.engine.run import run
from tlkit.models.bridge import Parts
from tlkit.models.tiny import FAMILIES, tiny
from tlkit.spec.interventions import Ablate, Patch, Project, Skip, Steer
from tlkit.spec.sites import COMPONENTS, EDGES, HEADS, Site
from tlkit.spec.sweeps import Condition, Sweep

ENGINES = ("packed", "reference")
SOME = ("gpt2", "gptj", "llama3", "mistral", "gemma3")
LAYERS = range(3)


def conditions(*several):
    return Sweep.over([Condition(str(i), tuple(one)) for i, one in enumerate(several)])


def measure(model, prompts, sweep, metric, engine, on="corrupted"):
    return run(model, prompts, sweep, metric, on=on, engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("family", SOME)
def test_patching_a_run_with_itself_changes_nothing(
    tiny_bridge, ragged, projection, family, engine
):
    """Behind an edit that does change something, so that it is not left out as provably nothing."""
    model = tiny_bridge(family)
    parts = Parts(model)
    earlier = Ablate(Site("embed", pos=1))
    alone = conditions([earlier])
    last = [
        Patch(Site(c, layer=2), source="corrupted")
        for c in COMPONENTS
        if c != "embed" and not parts.unsupported(c)
    ]
    # A site below which nothing was changed: its own activation, put back after the fact.
    below = [Patch(Site("resid_pre", layer=0), source="corrupted")]
    first = measure(model, ragged(model), alone, projection, engine)["effect"].values
    restored = measure(model, ragged(model), conditions([earlier, *below]), projection, engine)
    assert np.abs(first).max() > 1e-3
    np.testing.assert_allclose(restored["effect"], 0, atol=1e-5)
    whole = [one for one in last if one.site.component == "resid_post"]
    undone = measure(model, ragged(model), conditions([earlier, *whole]), projection, engine)
    np.testing.assert_allclose(undone["effect"], 0, atol=1e-5)
    itself = measure(model, ragged(model), conditions(*[[one] for one in last]), projection, engine)
    assert itself.attrs["free_jobs"] == 3 * len(last)
    np.testing.assert_array_equal(itself["effect"], 0)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_whole_stream_recovers_the_clean_run(tiny_bridge, ragged, projection, family, engine):
    model = tiny_bridge(family)
    names = ["resid_pre", "resid_post"]
    names += [] if Parts(model).unsupported("resid_mid") else ["resid_mid"]
    sweep = conditions(
        *[[Patch(Site(name, layer=layer))] for name in names for layer in LAYERS],
        [Patch(Site("embed"))],
    )
    found = measure(model, ragged(model), sweep, projection, engine)
    clean = np.broadcast_to(found["clean"].values[:, None], found["value"].shape)
    np.testing.assert_allclose(found["value"], clean, atol=1e-5)
    recovered = found["recovered"].values
    np.testing.assert_allclose(recovered[~np.isnan(recovered)], 1, atol=1e-3)
    assert np.isnan(recovered).mean() < 0.5  # only where clean and corrupted hardly differ


@pytest.mark.parametrize("engine", ENGINES)
def test_projecting_twice_is_projecting_once(tiny_bridge, ragged, projection, direction, engine):
    model = tiny_bridge("llama3")
    once = [Project(Site("resid_post", layer=1), direction)]
    unsteered = [Steer(Site("resid_post", layer=1), direction, scale=5.0), *once]
    sweep = conditions(once, once * 2, unsteered)
    found = measure(model, ragged(model), sweep, projection, engine)
    one, two, after = found["value"].values[0]
    assert np.abs(found["effect"].values).max() > 1e-3
    np.testing.assert_allclose(two, one, atol=1e-5)
    np.testing.assert_allclose(after, one, atol=1e-5)


def own_value(hf, prompts, projection, which="corrupted"):
    """The metric of each prompt from a Hugging Face model alone."""
    with torch.no_grad():
        return [
            float(projection(hf(torch.tensor([ids]), use_cache=False).logits[:, -1:]))
            for ids in getattr(prompts, which)
        ]


class Same(nn.Module):
    """A block that hands its stream on."""

    def __init__(self, whole):
        super().__init__()
        self.whole = whole

    def forward(self, hidden_states, *args, **kwargs):
        return self.whole(hidden_states)


# Where each family keeps its blocks, and what a block returns.
BLOCKS = {
    "gpt2": (lambda hf: hf.transformer.h, lambda hidden: hidden),
    "gptj": (lambda hf: hf.transformer.h, lambda hidden: (hidden, None)),
    "llama3": (lambda hf: hf.model.layers, lambda hidden: hidden),
    "gemma3": (lambda hf: hf.model.layers, lambda hidden: hidden),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("family", BLOCKS)
def test_skipping_a_block_is_a_model_without_it(tiny_bridge, ragged, projection, family, engine):
    model = tiny_bridge(family)
    blocks_of, returned = BLOCKS[family]
    sweep = Sweep(Skip(Site("resid_post")), layer=LAYERS)
    found = measure(model, ragged(model), sweep, projection, engine)["value"].values[0]
    for layer in LAYERS:
        hf = tiny(family)
        blocks = blocks_of(hf)
        blocks[layer] = Same(returned)
        expected = own_value(hf, ragged(model), projection)
        np.testing.assert_allclose(found[layer], expected, atol=1e-5)


# The output matrix of attention: rows of z for Linear [d_model, z], for Conv1D [z, d_model].
OUTPUTS = {
    "gpt2": lambda hf, layer: hf.transformer.h[layer].attn.c_proj.weight.T,
    "gptj": lambda hf, layer: hf.transformer.h[layer].attn.out_proj.weight,
    "neox": lambda hf, layer: hf.gpt_neox.layers[layer].attention.dense.weight,
    "qwen3": lambda hf, layer: hf.model.layers[layer].self_attn.o_proj.weight,
    "llama3": lambda hf, layer: hf.model.layers[layer].self_attn.o_proj.weight,
    "opt": lambda hf, layer: hf.model.decoder.layers[layer].self_attn.out_proj.weight,
    "bloom": lambda hf, layer: hf.transformer.h[layer].self_attention.dense.weight,
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("family", OUTPUTS)
def test_ablating_a_head_is_removing_its_output_rows(
    tiny_bridge, ragged, projection, family, engine
):
    model = tiny_bridge(family)
    sweep = Sweep(Ablate(Site("z")), layer=LAYERS, head=(0, 3))
    found = measure(model, ragged(model), sweep, projection, engine)
    assert np.abs(found["effect"].values).min() > 1e-4
    original = tiny(family)
    for i, layer in enumerate(LAYERS):
        for j, head in enumerate((0, 3)):
            hf = copy.deepcopy(original)
            output = OUTPUTS[family](hf, layer)
            width = output.shape[1] // 4
            output[:, head * width : (head + 1) * width] = 0
            expected = own_value(hf, ragged(model), projection)
            np.testing.assert_allclose(found["value"].values[0, i, j], expected, atol=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
def test_ablating_every_site_of_a_kind_is_the_sum_of_its_parts(
    tiny_bridge, ragged, projection, engine
):
    """All heads' z at 0 is attention's output at 0 where it has no bias; all edges at 0 too."""
    model = tiny_bridge("llama3")
    sweep = conditions(
        [Ablate(Site("attn_out", layer=1))],
        [Ablate(Site("z", layer=1))],
        [Ablate(Site("z", layer=1, head=head)) for head in range(4)],
        [Ablate(Site("pattern", layer=1))],
        [Ablate(Site("v", layer=1))],
        [Skip(Site("attn_out", layer=1))],
    )
    found = measure(model, ragged(model), sweep, projection, engine)
    assert np.abs(found["effect"].values).min() > 1e-3
    values = found["value"].values[0]
    np.testing.assert_allclose(values, np.broadcast_to(values[:1], values.shape), atol=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("family", ["llama3", "gpt2", "gptj"])
def test_positions_apart_are_positions_together(tiny_bridge, ragged, projection, family, engine):
    """Patches of single positions, heads and layers in one cell are the patch of all of them."""
    model = tiny_bridge(family)
    for component in ("resid_pre", *HEADS, *EDGES[:1]):
        narrow = (
            [{"query": p} for p in range(14)]
            if component in EDGES
            else [{"pos": p} for p in range(14)]
        )
        whole = conditions([Patch(Site(component, layer=1))])
        apart = conditions([Patch(Site(component, layer=1, **one)) for one in narrow])
        one = measure(model, ragged(model)[2:], whole, projection, engine)
        other = measure(model, ragged(model)[2:], apart, projection, engine)
        assert abs(float(one["effect"][0, 0, 0])) > 5e-5
        np.testing.assert_allclose(other["value"], one["value"], atol=1e-5)
