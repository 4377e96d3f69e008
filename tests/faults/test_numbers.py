"""Promises about numbers, memory and the model itself while things go wrong."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

import tlkit as tk
from tlkit.engine.packed import Packed
from tlkit.errors import EngineError, SpecError, TlkitWarning
from tlkit.models.bridge import Parts
from tlkit.models.load import HookedTransformer
from tlkit.models.tiny import tiny, tiny_tokenizer

# Promise: weights that are NaN or infinite are told when the model is loaded.


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_no_numbers_are_named(value, tmp_path):
    model = tiny("llama3")
    model.model.layers[1].mlp.up_proj.weight[3, 4] = value
    message = r"1 of the 8,192 numbers of model\.layers\.1\.mlp\.up_proj\.weight"
    with pytest.raises(SpecError, match=message):
        HookedTransformer.from_pretrained(model, tokenizer=tiny_tokenizer())
    model.save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(SpecError, match=message):
        HookedTransformer.from_pretrained(tmp_path, device="cpu")


# Promise: NaN that the model or an intervention makes is told, with its cells and examples.


@dataclass(frozen=True)
class Overflow(tk.Intervention):
    """Drives one layer out of range."""

    def edit(self, act, source):
        return act * float("inf")


def test_cells_that_come_out_as_nan_are_named(swept, tmp_path):
    sweep = tk.Sweep(Overflow(tk.Site("mlp_out", pos=11)), layer=[1])
    with pytest.warns(TlkitWarning, match="2 of 2 values .*example 0; .*example 2.*interventions"):
        found = tk.run(swept.model, swept.prompts, sweep, tk.LogitDiff(), store=tmp_path / "x.zarr")
    assert np.isnan(found["value"].values[0, 0]).tolist() == [True, True, True]  # 1 lacks pos 11
    assert "NaN or infinite" in tk.open(tmp_path / "x.zarr").attrs["not_finite"]


def test_a_model_that_gives_nan_is_told_by_its_unchanged_runs(tiny_bridge, swept):
    model = HookedTransformer.from_pretrained("tiny:gpt2", device="cpu")
    model.ln_final.original_component.weight.data[0] = float("nan")
    with pytest.warns(TlkitWarning, match="unchanged clean run of example 0.*the model itself"):
        tk.run(model, swept.prompts, swept.sweep, tk.LogitDiff())


def test_a_cell_that_an_example_lacks_is_not_told(swept, recwarn):
    assert np.isnan(swept.run()["value"].values).any()
    assert not [one for one in recwarn if issubclass(one.category, TlkitWarning)]


# Promise: where memory runs out, chunks are halved and the run goes on; else it says so.

CPU = "[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory: you tried"


@pytest.mark.parametrize(
    "error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory"), RuntimeError(CPU)]
)
def test_memory_that_runs_out_halves_the_chunks(swept, monkeypatch, error):
    plain, sizes = Packed.run, []

    def run(self):
        sizes.append(self.chunk)
        if self.chunk > 16:
            raise error
        return plain(self)

    monkeypatch.setattr(Packed, "run", run)
    monkeypatch.setattr("tlkit.engine.packed_values.CHUNK", 64)
    swept.same(swept.run())
    assert sizes[:3] == [64, 32, 16]
    monkeypatch.setattr(Packed, "run", lambda self: (_ for _ in ()).throw(error))
    with pytest.raises(EngineError, match="Out of memory even with 16 tokens"):
        swept.run()


def test_another_runtime_error_is_no_lack_of_memory(swept, monkeypatch):
    def broken(self):
        raise RuntimeError("shapes cannot be multiplied")

    monkeypatch.setattr(Packed, "run", broken)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        swept.run()


# Promise: after a hook or an intervention that raises, the model is what it was.


@dataclass(frozen=True)
class Raising(tk.Intervention):
    """A user's mistake."""

    def edit(self, act, source):
        raise ZeroDivisionError("mine")


def hooks_of(model):
    modules = [*model.modules(), *model.original_model.modules()]
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in modules)


def attempts(model, prompts):
    """Everything that calls code of the user's while the model is changed."""
    sweep = tk.Sweep(Raising(tk.Site("mlp_out")), layer=range(3))
    condition = tk.Condition("mine", (Raising(tk.Site("attn_out", layer=1)),))

    def metric(logits):
        raise ZeroDivisionError("mine")

    plain = tk.Sweep(tk.Ablate(tk.Site("z")), layer=[0])
    yield lambda: tk.run(model, prompts, sweep, tk.LogitDiff())
    yield lambda: tk.run(model, prompts, sweep, tk.LogitDiff(), engine="reference")
    yield lambda: tk.run(model, prompts, plain, metric)
    yield lambda: tk.run(model, prompts, plain, metric, engine="reference")
    yield lambda: tk.capture(model, prompts, tk.Site("resid_post"), condition)
    yield lambda: tk.generate(model, prompts, condition, max_new_tokens=2)
    hook = ("blocks.1.hook_resid_pre", lambda value, hook: 1 / 0)
    yield lambda: model.run_with_hooks(torch.tensor([[1, 2, 3]]), fwd_hooks=[hook])


@pytest.mark.parametrize("family", ["llama3", "gptj"])
def test_the_model_is_as_before_after_code_that_raises(family, tiny_bridge):
    from tlkit.checks.samples import sample_pairs

    model = tiny_bridge(family)
    prompts, ids = sample_pairs(Parts(model), seed=0), torch.tensor([[1, 2, 3, 4, 5]])
    with torch.no_grad():
        before, hooks = model(ids), hooks_of(model)
    implementation = model.original_model.config._attn_implementation
    for attempt in attempts(model, prompts):
        with pytest.raises(ZeroDivisionError):
            attempt()
        assert hooks_of(model) == hooks
        assert model.original_model.config._attn_implementation == implementation
        with torch.no_grad():
            assert torch.equal(model(ids), before)
