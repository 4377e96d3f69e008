"""TransformerLens's patching functions, held to TransformerLens."""

import numpy as np
import pandas as pd
import pytest
import torch
import transformer_lens.patching as tl
from torch.testing import assert_close

import tlkit as tk
from tlkit.errors import SpecError
from tlkit.models.tiny import tiny, tiny_tokenizer
from tlkit.studies import act_patch_run

DIFFERS = 2
CLEAN = torch.tensor([[11, 42, 7, 300, 5], [80, 9, 120, 33, 64]])
CORRUPTED = torch.tensor([[11, 42, 77, 300, 5], [80, 9, 121, 34, 64]])
SWEEPS = [
    "get_act_patch_resid_pre",
    "get_act_patch_resid_mid",
    "get_act_patch_attn_out",
    "get_act_patch_mlp_out",
    "get_act_patch_attn_head_out_by_pos",
    "get_act_patch_attn_head_k_by_pos",
    "get_act_patch_attn_head_q_all_pos",
    "get_act_patch_attn_head_v_all_pos",
    "get_act_patch_attn_head_pattern_all_pos",
    "get_act_patch_attn_head_pattern_by_pos",
]


def per_example(logits):
    return logits[:, -1, 7] - logits[:, -1, 9] + logits[:, 2, 11]


def average(logits):
    return per_example(logits).mean()


@pytest.fixture(scope="module")
def llama(tiny_bridge):
    model = tiny_bridge("llama3")
    return model, model.run_with_cache(CLEAN)[1]


def theirs(name, *arguments, **keywords):
    with torch.no_grad():  # else TransformerLens's resid_mid is not the stream
        return getattr(tl, name)(*arguments, **keywords)


@pytest.mark.parametrize("name", SWEEPS)
def test_values_are_transformer_lenss(llama, name):
    model, cache = llama
    ours = getattr(tk.patching, name)(model, CORRUPTED, cache, average)
    assert_close(ours, theirs(name, model, CORRUPTED, cache, average), atol=1e-5, rtol=0)
    assert ours.std() > 1e-3


def test_single_weights_of_patterns(llama):
    model, cache = llama
    cells = [[layer, head, 4, key] for layer in (0, 2) for head in (1, 3) for key in range(5)]
    cells += [[1, 0, 2, 3]]  # a key behind its query: nothing changes
    frame = pd.DataFrame(cells, columns=["layer", "head_index", "dest_pos", "src_pos"])
    name = "get_act_patch_attn_head_pattern_dest_src_pos"
    given = {"index_axis_names": None, "index_df": frame}
    ours = getattr(tk.patching, name)(model, CORRUPTED, cache, average, **given)
    assert_close(ours, theirs(name, model, CORRUPTED, cache, average, **given), atol=1e-5, rtol=0)


def test_the_stream_is_patched_with_gradients_on(llama):
    model, cache = llama
    with torch.enable_grad():
        ours = tk.patching.get_act_patch_resid_mid(model, CORRUPTED, cache, average)
    expected = theirs("get_act_patch_resid_mid", model, CORRUPTED, cache, average)
    assert_close(ours, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("reduce", ["none", "mean"])
def test_values_per_example_with_statistics(llama, reduce):
    model, cache = llama
    metrics = {"first": per_example, "second": lambda logits: logits[:, 3, 5]}
    arguments = (model, CORRUPTED, cache, metrics)
    ours = tk.patching.get_act_patch_resid_pre(*arguments, reduce=reduce, baseline=True)
    expected = theirs("get_act_patch_resid_pre", *arguments, reduce=reduce, baseline=True)
    assert isinstance(ours, tl.PatchingResult)
    for field in ("values", "baseline"):
        assert_close(getattr(ours, field), getattr(expected, field), atol=1e-5, rtol=0)
    assert_close(ours["second"].effect(), expected["second"].effect(), atol=1e-5, rtol=0)
    pd.testing.assert_frame_equal(ours.to_dataframe(), expected.to_dataframe(), atol=1e-5)


def test_every_sweep_stacked_and_heads_that_are_not_there(llama):
    model, cache = llama
    name = "get_act_patch_attn_head_by_pos_every"
    ours = getattr(tk.patching, name)(model, CORRUPTED, cache, average)
    expected = theirs(name, model, CORRUPTED, cache, average)
    kv_heads = model.cfg.n_key_value_heads
    padded = torch.zeros_like(expected, dtype=torch.bool)
    padded[2:4, ..., kv_heads:] = True
    assert torch.equal(ours.isnan(), padded)
    assert_close(ours[~padded], expected[~padded], atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "name", ["get_act_patch_block_every", "get_act_patch_attn_head_all_pos_every"]
)
def test_every_sweep_with_statistics(llama, name):
    model, cache = llama
    ours = getattr(tk.patching, name)(model, CORRUPTED, cache, per_example, reduce="none")
    expected = theirs(name, model, CORRUPTED, cache, per_example, reduce="none")
    kept = ~ours.values.isnan()
    assert kept.float().mean() > 0.7
    assert_close(ours.values[kept], expected.values[kept], atol=1e-5, rtol=0)
    assert ours.patch_type_names == expected.patch_type_names
    pd.testing.assert_frame_equal(ours.index_df, expected.index_df)


def test_patterns_that_transformer_lens_cannot_write(tiny_bridge):
    model = tiny_bridge("gptj")
    _, cache = model.run_with_cache(CLEAN)
    ours = tk.patching.get_act_patch_attn_head_pattern_all_pos(model, CORRUPTED, cache, average)
    _, own = model.run_with_cache(CORRUPTED)
    layer, head = 1, 2
    v = own[f"blocks.{layer}.attn.hook_v"]
    pattern = cache[f"blocks.{layer}.attn.hook_pattern"][:, head]

    def mix(z, hook):
        heads = z.view(*z.shape[:2], model.cfg.n_heads, -1).clone()
        heads[:, :, head] = pattern @ v.view(heads.shape)[:, :, head]
        return heads.view(z.shape)

    by_hand = model.run_with_hooks(CORRUPTED, fwd_hooks=[(f"blocks.{layer}.attn.hook_z", mix)])
    assert_close(ours[layer, head], average(by_hand), atol=1e-5, rtol=0)
    assert abs(ours[layer, head] - average(model(CORRUPTED))) > 1e-4


def test_a_metric_that_declares_what_it_reads_gets_just_that(llama):
    model, cache = llama
    seen = set()

    def declared(logits):
        seen.add(tuple(logits.shape))
        return (logits[:, -1, 0] - logits[:, -1, 1]).mean()

    declared.positions, declared.vocabulary = -1, (90, 7)
    ours = tk.patching.get_act_patch_resid_pre(model, CORRUPTED, cache, declared)
    expected = theirs(
        "get_act_patch_resid_pre", model, CORRUPTED, cache,
        lambda logits: (logits[:, -1, 90] - logits[:, -1, 7]).mean(),
    )  # fmt: skip
    assert seen == {(2, 1, 2)}
    assert_close(ours, expected, atol=1e-5, rtol=0)


def halfway(corrupted, index, clean):
    """A user's own setter: half of each run, at one position and all later ones."""
    _, position = index
    corrupted[:, position:] = (corrupted[:, position:] + clean[:, position:]) / 2
    return corrupted


@pytest.mark.parametrize("activation", ["resid_post", "z", "post"])
def test_a_setter_of_ones_own(llama, activation):
    model, cache = llama
    arguments = (model, CORRUPTED, cache, average, halfway, activation, ("layer", "pos"))
    ours = tk.patching.generic_activation_patch(*arguments)
    expected = theirs("generic_activation_patch", *arguments)
    assert_close(ours, expected, atol=1e-5, rtol=0)
    assert ours.std() > 1e-3


def test_cells_given_one_by_one(llama):
    model, cache = llama
    frame = pd.DataFrame({"layer": [2, 0, 1], "pos": [-1, 2, 3]})
    arguments = (model, CORRUPTED, cache, average, tl.layer_pos_patch_setter, "mlp_out")
    ours, cells = tk.patching.generic_activation_patch(
        *arguments, index_df=frame, return_index_df=True
    )
    expected = theirs("generic_activation_patch", *arguments, index_df=frame)
    assert_close(ours, expected, atol=1e-5, rtol=0)
    pd.testing.assert_frame_equal(cells, frame)


def test_one_clean_prompt_serves_a_batch(llama):
    model, _ = llama
    _, cache = model.run_with_cache(CLEAN[:1])
    arguments = (model, CORRUPTED, cache, average)
    ours = tk.patching.get_act_patch_attn_head_out_all_pos(*arguments)
    expected = theirs("get_act_patch_attn_head_out_all_pos", *arguments)
    assert_close(ours, expected, atol=1e-5, rtol=0)


def jobs_run(monkeypatch, call):
    """How many (cell, example) jobs a call runs."""
    counts = []
    found = act_patch_run.jobs_of

    def counted(*arguments):
        jobs, sequences = found(*arguments)
        counts.append(len(jobs))
        return jobs, sequences

    monkeypatch.setattr(act_patch_run, "jobs_of", counted)
    call()
    return counts[0]


@pytest.mark.parametrize("known_by", ["embeddings", "tokens", "nothing"])
def test_equal_tokens_cost_nothing(llama, monkeypatch, known_by):
    model, cache = llama
    kept = cache
    if known_by != "embeddings":
        kept = {name: value for name, value in cache.items() if "embed" not in name}
    tokens = CLEAN if known_by == "tokens" else None
    run = jobs_run(monkeypatch, lambda: tk.patching.get_act_patch_resid_pre(
        model, CORRUPTED, kept, average, clean_tokens=tokens))  # fmt: skip
    # Layers 1 and 2: from the first difference on. Layer 0: where tokens differ.
    layers, length = model.cfg.n_layers, CLEAN.shape[1]
    by_tokens = 2 * (layers - 1) * (length - DIFFERS) + int((CLEAN != CORRUPTED).sum())
    assert run == (2 * layers * length if known_by == "nothing" else by_tokens)


def test_a_cache_of_another_model_with_the_same_embeddings_is_not_free(llama):
    model, _ = llama
    other = tiny("llama3", seed=1)
    own = model.original_model.get_input_embeddings()
    other.get_input_embeddings().weight.data.copy_(own.weight.data)
    bridge = tk.HookedTransformer.from_pretrained(other, tokenizer=tiny_tokenizer())
    _, cache = bridge.run_with_cache(CORRUPTED)
    ours = tk.patching.get_act_patch_mlp_out(model, CORRUPTED, cache, average)
    expected = theirs("get_act_patch_mlp_out", model, CORRUPTED, cache, average)
    assert_close(ours, expected, atol=1e-5, rtol=0)
    assert (ours[:, :DIFFERS] - average(model(CORRUPTED))).abs().max() > 1e-3


def test_a_model_with_hooks_runs_transformer_lenss_loop_and_says_so():
    model = tk.HookedTransformer.from_pretrained("tiny:gpt2")
    _, cache = model.run_with_cache(CLEAN)
    model.blocks[0].hook_out.add_hook(lambda value, hook: value * 0.5)
    with pytest.warns(UserWarning, match="one full pass per cell: the model carries a hook"):
        ours = tk.patching.get_act_patch_resid_pre(model, CORRUPTED, cache, average)
    expected = theirs("get_act_patch_resid_pre", model, CORRUPTED, cache, average)
    assert_close(ours, expected, atol=1e-5, rtol=0)


def test_patterns_of_a_model_with_hooks_that_transformer_lens_cannot_write(tiny_bridge):
    _, cache = tiny_bridge("gptj").run_with_cache(CLEAN)
    name, frame = "get_act_patch_attn_head_pattern_by_pos", pd.DataFrame({
        "layer": [0, 1, 2], "head_index": [1, 2, 0], "dest_pos": [3, 4, 2]})  # fmt: skip
    given = {"index_axis_names": None, "index_df": frame}
    packed = getattr(tk.patching, name)(tiny_bridge("gptj"), CORRUPTED, cache, average, **given)
    model = tk.HookedTransformer.from_pretrained("tiny:gptj")
    model.blocks[0].hook_out.add_hook(lambda value, hook: value * 1.0)
    with pytest.warns(UserWarning, match="carries a hook"):
        ours = getattr(tk.patching, name)(model, CORRUPTED, cache, average, **given)
    assert_close(ours, packed, atol=1e-5, rtol=0)


def test_an_activation_that_is_no_site_of_ours_runs_transformer_lenss_loop(llama):
    model, cache = llama
    frame = pd.DataFrame({"layer": [1], "head": [3]})
    arguments = (model, CORRUPTED, cache, average, tl.layer_head_pattern_patch_setter)
    given = (*arguments, "attn_scores", None, frame)
    with pytest.warns(UserWarning, match="does not edit 'attn_scores'"):
        ours = tk.patching.generic_activation_patch(*given)
    assert_close(ours, theirs("generic_activation_patch", *given), atol=1e-5, rtol=0)


REFUSED = {
    "must be token ids": {"tokens": "a text"},
    r"token ids \[batch, pos\]": {"tokens": CORRUPTED[0]},
    "does not fit corrupted tokens": {"tokens": CORRUPTED[:, :4]},
    "as many of each": {"tokens": CORRUPTED.repeat(2, 1)[:3]},
    "clean_tokens are": {"clean_tokens": CLEAN[:, :3]},
    "has no 'blocks.0.hook_resid_pre'": {"cache": {}},
    "must return a scalar": {"metric": per_example},
    "mapping of metrics is empty": {"metric": {}},
    "is no function": {"metric": 3},
    "reduce='sum' is not known": {"reduce": "sum"},
    "reads position 9 of 5": {"positions": 9},
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_does_not_fit_is_refused(llama, message):
    model, cache = llama
    asked = dict(REFUSED[message])
    metric = asked.pop("metric", lambda logits: logits.mean())
    if "positions" in asked:
        metric.positions = asked.pop("positions")
    with pytest.raises(SpecError, match=message):
        tk.patching.get_act_patch_resid_pre(
            model, asked.pop("tokens", CORRUPTED), asked.pop("cache", cache), metric, **asked
        )


def test_training_mode_is_refused():
    model = tk.HookedTransformer.from_pretrained("tiny:llama")
    _, cache = model.run_with_cache(CLEAN)
    model.train()
    with pytest.raises(SpecError, match="evaluation mode"):
        tk.patching.get_act_patch_resid_pre(model, CORRUPTED, cache, average)


def test_parallel_blocks_have_no_stream_between(tiny_bridge):
    model = tiny_bridge("gptj")
    with pytest.raises(SpecError, match="no stream between"):
        tk.patching.get_act_patch_resid_mid(model, CORRUPTED, {}, average)


def test_a_setter_that_returns_something_else_is_refused(llama):
    model, cache = llama
    arguments = (model, CORRUPTED, cache, average, lambda *_: None, "resid_pre", ("layer", "pos"))
    with pytest.raises(SpecError, match="must return the activation"):
        tk.patching.generic_activation_patch(*arguments)


def test_every_public_name_of_transformer_lens_is_here():
    named = [name for name in dir(tl) if name.startswith(("get_act_patch", "layer_"))]
    assert np.all([hasattr(tk.patching, name) for name in named])
