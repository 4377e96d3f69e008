"""Direct path patching, held to TransformerLens and to hooks by hand."""

import pytest
import torch
from torch.testing import assert_close
from transformer_lens import patching as tl

import tlkit as tk
from tlkit.errors import SpecError

CLEAN = torch.tensor([[11, 42, 7, 300, 5], [80, 9, 120, 33, 64]])
CORRUPTED = torch.tensor([[11, 42, 77, 300, 5], [80, 9, 121, 34, 64]])


def average(logits):
    return (logits[:, -1, 7] - logits[:, -1, 9] + logits[:, 2, 11]).mean()


def caches(model):
    return model.run_with_cache(CLEAN)[1], model.run_with_cache(CORRUPTED)[1]


@pytest.mark.parametrize(("family", "component"), [("llama", "v"), ("gpt2", "k"), ("llama3", "q")])
def test_paths_from_one_head_are_transformer_lenss(tiny_bridge, family, component):
    model = tiny_bridge(family)
    arguments = (model, CORRUPTED, *caches(model), average, 0, 1, component)
    ours = tk.patching.get_act_patch_direct_path(*arguments)
    expected = tl.get_act_patch_direct_path(*arguments, verbose=False)
    assert_close(ours, expected, atol=1e-5, rtol=0)
    assert ours[1:].std() > 1e-4


def test_paths_from_every_head_are_those_from_each(tiny_bridge):
    model = tiny_bridge("llama3")
    arguments = (model, CORRUPTED, *caches(model), average)
    every = tk.patching.get_act_patch_direct_path_all_sources(*arguments)
    assert torch.equal(every[1, 3], tk.patching.get_act_patch_direct_path(*arguments, 1, 3))
    assert torch.equal(every[2], torch.zeros_like(every[2]))


def test_a_model_whose_inputs_transformer_lens_does_not_fork(tiny_bridge):
    """GPT-J: the destination's queries are computed by hand from the changed stream."""
    model = tiny_bridge("gptj")
    clean, corrupted = caches(model)
    ours = tk.patching.get_act_patch_direct_path(model, CORRUPTED, clean, corrupted, average, 0, 1)
    width = model.cfg.d_head

    def z(cache):
        return cache["blocks.0.attn.hook_z"].view(2, 5, -1)[..., width : 2 * width]

    block = model.blocks[2].original_component
    write = (z(clean) - z(corrupted)) @ model.blocks[0].attn.W_O[1]
    stream = corrupted["blocks.2.hook_resid_pre"] + write
    queries = block.attn.q_proj(block.ln_1(stream)).view(2, 5, -1, width)

    def put(q, hook):
        changed = q.view(queries.shape).clone()
        changed[:, :, 3] = queries[:, :, 3]
        return changed.view(q.shape)

    logits = model.run_with_hooks(CORRUPTED, fwd_hooks=[("blocks.2.attn.hook_q", put)])
    assert_close(ours[2, 3], average(logits), atol=1e-5, rtol=0)
    assert abs(ours[2, 3] - average(model(CORRUPTED))) > 1e-5


@pytest.mark.parametrize(
    ("family", "asked", "message"),
    [
        ("llama3", (0, 0, "k"), "shares 2 key/value heads"),
        ("gemma3", (0, 0, "q"), "norms or scales"),
        ("llama", (0, 9, "q"), r"no head 0\.9"),
        ("llama", (0, 0, "z"), "component='z' is not known"),
    ],
)
def test_paths_that_are_not_defined_are_refused(tiny_bridge, family, asked, message):
    model = tiny_bridge(family)
    with pytest.raises(SpecError, match=message):
        tk.patching.get_act_patch_direct_path(model, CORRUPTED, {}, {}, average, *asked)
