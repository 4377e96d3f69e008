"""Runs are good guests: model and process are afterwards as they were, also after a failure."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch

from tlkit.engine.run import run
from tlkit.models.info import hash_weights
from tlkit.spec.interventions import Ablate, Intervention, Patch
from tlkit.spec.sites import Site
from tlkit.spec.sweeps import Condition, Sweep

ENGINES = ("packed", "reference")
FAMILIES = ("llama3", "gptj", "opt")


def state(model):
    """Everything of the model and of the process that a run could leave changed."""
    model(
        torch.tensor([[1, 2, 3]])
    )  # TransformerLens sets up some hooks of its own when first used
    hf = model.original_model
    modules = list(hf.modules())
    return {
        "weights": hash_weights(model),
        "modules": [id(module) for module in modules],
        "attributes": [sorted(vars(module)) for module in modules],
        "torch hooks": [
            (len(m._forward_hooks), len(m._forward_pre_hooks), len(m._backward_hooks))
            for m in modules
        ],
        "hooks": {name: len(point.fwd_hooks) for name, point in model.hook_dict.items()},
        "attention": hf.config._attn_implementation,
        "training": model.training,
        "gradients": [p.requires_grad for p in model.parameters()],
        "grad mode": torch.is_grad_enabled(),
        "torch": torch.get_rng_state().tolist(),
        "numpy": np.random.get_state()[1].tolist(),
        "dtype": torch.get_default_dtype(),
        "threads": torch.get_num_threads(),
        "filters": list(warnings.filters),
    }


def conditions():
    sites = [Site(c, layer=1) for c in ("resid_pre", "attn_out", "mlp_post", "z", "q", "pattern")]
    several = [Condition(str(s), (Patch(s),)) for s in sites]
    several.append(Condition("embed", (Ablate(Site("embed", pos=3)),)))
    several.append(Condition("resample", (Ablate(Site("mlp_out", layer=0), value="resample"),)))
    return Sweep.over(several)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_is_left_changed(tiny_bridge, ragged, projection, family, engine, grad):
    model, prompts = tiny_bridge(family), ragged(tiny_bridge(family))
    before = state(model)
    with torch.set_grad_enabled(grad):
        found = run(model, prompts, conditions(), projection, engine=engine, audit=0.2)
        assert torch.is_grad_enabled() == grad
    assert found.attrs["engine"] == engine
    assert state(model) == before


class Stop(Exception):
    """Something that goes wrong in the middle."""


class Failing(Intervention):
    def edit(self, act, source):
        raise Stop


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("component", ["resid_pre", "z", "mlp_post", "pattern"])
@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_is_left_changed_after_a_failure(
    tiny_bridge, ragged, projection, family, engine, component
):
    model = tiny_bridge(family)
    before = state(model)
    sweep = Sweep.over([Condition("fails", (Failing(Site(component, layer=1)),))])
    with pytest.raises(Stop):
        run(model, ragged(model), sweep, projection, engine=engine)
    assert state(model) == before


def test_pythons_own_random_numbers_go_on_as_if_nothing_had_been_run():
    """In a process of its own: here the run-time type checker draws from the same generator."""
    code = (
        "import random, tlkit as tk\n"
        "from tlkit.models.load import HookedTransformer\n"
        "from tlkit.checks.samples import sample_pairs\n"
        "from tlkit.models.bridge import Parts\n"
        "model = HookedTransformer.from_pretrained('tiny:gptj', device='cpu')\n"
        "prompts = sample_pairs(Parts(model), 0)\n"
        "random.seed(0)\n"
        "state = random.getstate()\n"
        "sweep = tk.Sweep(tk.Ablate(tk.Site('z'), value='resample'), layer=range(3))\n"
        "for engine in ('packed', 'reference'):\n"
        "    tk.run(model, prompts, sweep, tk.KL(), engine=engine, audit=0.5)\n"
        "assert random.getstate() == state\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_interrupted_run_leaves_nothing_changed(tiny_bridge, ragged, projection):
    def interrupt(done, total):
        raise KeyboardInterrupt

    model = tiny_bridge("llama3")
    before = state(model)
    with pytest.raises(KeyboardInterrupt):
        run(model, ragged(model), conditions(), projection, progress=interrupt)
    assert state(model) == before


@pytest.mark.parametrize("family", FAMILIES)
def test_a_users_own_hook_is_honoured_and_stays(tiny_bridge, ragged, projection, family):
    """A hook that changes the model is part of the model, for both engines."""
    model = tiny_bridge(family)
    sweep = Sweep(Patch(Site("resid_pre")), layer=(0, 2), pos=(8,))
    plain = run(model, ragged(model), sweep, projection)
    point = model.hook_dict["blocks.1.hook_mlp_out"]
    before = len(point.fwd_hooks)
    try:
        point.add_hook(lambda value, hook: value * 0)
        found = run(model, ragged(model), sweep, projection)
        assert found.attrs["engine"] == "reference"
        assert "the model carries a hook of yours" in found.attrs["engine_reason"]
        expected = run(model, ragged(model), sweep, projection, engine="reference")
        np.testing.assert_array_equal(found["value"], expected["value"])
        assert len(point.fwd_hooks) == before + 1
        given = [Ablate(Site("mlp_out", layer=1))]
        point.remove_hooks()
        sweep_given = Sweep(Patch(Site("resid_pre")), layer=(2,), pos=(8,), given=given)
        held = run(model, ragged(model), sweep_given, projection)
        assert held.attrs["engine"] == "packed"
        # The clean run that is patched in had the hook as well: only layers above it compare.
        assert abs(found["value"].values - plain["value"].values).max() > 1e-3
        np.testing.assert_allclose(found["base"], held["base"], atol=1e-5)
    finally:
        model.reset_hooks()


def test_a_torch_hook_on_the_models_own_modules_is_honoured(tiny_bridge, ragged, projection):
    model = tiny_bridge("llama3")
    sweep = Sweep(Patch(Site("resid_pre")), layer=(2,), pos=(8,))
    module = model.blocks[1].mlp.original_component
    handle = module.register_forward_hook(lambda m, args, out: out * 0)
    try:
        found = run(model, ragged(model), sweep, projection)
        assert found.attrs["engine"] == "reference"
        assert found.attrs["engine_reason"].endswith("layers.1.mlp")
    finally:
        handle.remove()
    assert run(model, ragged(model), sweep, projection).attrs["engine"] == "packed"


def test_a_source_is_not_written_into(tiny_bridge, ragged, projection):
    """An edit that writes into what it gets must not spoil other cells."""

    class Rude(Intervention):
        source = "clean"

        def edit(self, act, source):
            source.zero_()
            return source

    model = tiny_bridge("llama3")
    site = Site("resid_pre", layer=1, pos=8)
    alone = Sweep.over([Condition("patch", (Patch(site),))])
    both = Sweep.over([Condition("rude", (Rude(site),)), Condition("patch", (Patch(site),))])
    for engine in ENGINES:
        expected = run(model, ragged(model), alone, projection, engine=engine)["value"][0, 0]
        found = run(model, ragged(model), both, projection, engine=engine)["value"][0, 1]
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_comparisons_above_notice(tiny_bridge):
    """`state` sees a changed weight, a hook, a setting and a drawn random number."""
    model = tiny_bridge("llama3")
    before = state(model)
    handle = model.blocks[0].original_component.register_forward_hook(lambda *_: None)
    assert state(model) != before
    handle.remove()
    weight = next(model.parameters())
    weight.data[0, 0] += 1
    assert state(model) != before
    weight.data[0, 0] -= 1
    saved = torch.get_rng_state()
    torch.rand(1)
    assert state(model) != before
    torch.set_rng_state(saved)
    model.original_model.config._attn_implementation = "sdpa"
    assert state(model) != before
    model.original_model.config._attn_implementation = "eager"
    assert state(model)["hooks"] == before["hooks"]
