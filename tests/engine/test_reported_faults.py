"""Faults that users of other tools reported, and the right answer to each.

Names say what was reported; viewing and saving, loading and tokens have theirs in the tests of
`plots`, `results`, `models` and `prompts`.
"""

import gc
import resource

import numpy as np
import pytest
import torch

from tlkit.engine.generate import greedy
from tlkit.engine.generating import generate
from tlkit.engine.hooked import run_hooked
from tlkit.engine.patterns import patterns
from tlkit.engine.run import run
from tlkit.errors import EngineError, SpecError
from tlkit.models.bridge import Parts
from tlkit.prompts.prompts import Prompts
from tlkit.spec.attention import Knockout
from tlkit.spec.interventions import Ablate, Patch
from tlkit.spec.metrics import LogitDiff
from tlkit.spec.sites import Site
from tlkit.spec.sweeps import Sweep


@pytest.fixture(scope="module")
def model(tiny_bridge):
    return tiny_bridge("llama3")


def pair(clean, corrupted):
    return Prompts.from_tokens([clean], [corrupted], [[7]], [[17]])


def test_missing_kv_heads_are_never_zero(model):
    """The stacked "all types" sweep filled the kv heads that do not exist with 0."""
    from tlkit.studies.patching import get_act_patch_attn_head_all_pos_every

    clean, corrupted = torch.tensor([[5, 60, 61, 9]]), torch.tensor([[5, 60, 71, 9]])
    _, cache = model.run_with_cache(clean)
    found = get_act_patch_attn_head_all_pos_every(
        model, corrupted, cache, lambda logits: logits[0, -1, 7] - logits[0, -1, 17]
    )
    kv = Parts(model).n_kv_heads
    padded = torch.isnan(found).flatten(1).any(1)
    assert int(padded.sum()) == 2  # k and v
    assert torch.isnan(found[padded][:, :, kv:]).all()
    assert not torch.isnan(found[padded][:, :, :kv]).any()


def test_longer_clean_prompt_is_aligned_not_shifted(model):
    """8 against 6 tokens: two clean positions have no counterpart, and none is guessed."""
    clean, corrupted = [5, 60, 61, 62, 63, 9, 10, 11], [5, 60, 64, 9, 10, 11]
    prompts = pair(clean, corrupted)
    assert prompts.alignment is not None
    assert prompts.alignment[0][3:] == (5, 6, 7)
    sweep = Sweep(Patch(Site("resid_pre", layer=1)), pos=range(6))
    value = run(model, prompts, sweep, LogitDiff())["value"].values[0, :, 0]
    unmapped = [p for p, q in enumerate(prompts.alignment[0]) if q < 0]
    assert np.isnan(value[unmapped]).all()
    assert np.isfinite(np.delete(value, unmapped)).all()


def test_shorter_clean_prompt_does_not_die_in_mid_sweep(model):
    prompts = pair([5, 60, 64, 9, 10, 11], [5, 60, 61, 62, 63, 9, 10, 11])
    sweep = Sweep(Patch(Site("resid_pre")), layer=range(3), pos=range(8))
    value = run(model, prompts, sweep, LogitDiff())["value"]
    assert 0 < int(value.isnull().sum()) < value.size


def test_source_that_does_not_exist_is_an_error(model):
    """Patching with a value that was never saved did nothing."""
    prompts = Prompts.from_tokens([[5, 60, 61]], answers=[[7]], wrong_answers=[[17]])
    with pytest.raises(SpecError, match="corrupted"):
        run(model, prompts, Sweep(Patch(Site("z"), source="corrupted"), layer=[0]), LogitDiff())


def test_shorter_rows_of_a_batch_are_not_wrong(tiny_bridge):
    """Left-padded GPT-2 batches gave wrong logits for the shorter rows."""
    model = tiny_bridge("gpt2")
    rows = [[5, 60, 61, 62, 63], [5, 70, 71, 72, 73, 74, 75, 76, 77]]
    sweep = Sweep(Ablate(Site("z")), layer=range(3), head=range(4))

    def values(some):
        count = len(some)
        prompts = Prompts.from_tokens(some, answers=[[7]] * count, wrong_answers=[[17]] * count)
        return run(model, prompts, sweep, LogitDiff())["value"].values

    together = values(rows)
    for i, row in enumerate(rows):
        np.testing.assert_allclose(together[..., i], values([row])[..., 0], atol=1e-5)


def test_users_own_hook_survives_and_fires(model):
    """A temporary run removed the user's hook."""
    seen = []
    point = model.hook_dict["blocks.1.hook_resid_post"]
    point.add_hook(lambda value, hook: seen.append(1))
    try:
        prompts = pair([5, 60, 61, 9], [5, 60, 71, 9])
        found = run(model, prompts, Sweep(Patch(Site("z")), layer=[0], head=[0]), LogitDiff())
        assert found.attrs["engine"] == "reference"
        assert "hook" in found.attrs["engine_reason"]
        assert seen
        seen.clear()
        model(torch.tensor([[5, 60, 61]]))
        assert seen == [1]
    finally:
        model.reset_hooks()


def test_hook_that_does_nothing_is_an_error(tiny_bridge):
    """Hooks on norms silently did nothing: norms are no sites, and a silent hook is an error."""
    with pytest.raises(SpecError, match="There is no site 'ln1'; the sites are"):
        Site("ln1", layer=0)
    parts = Parts(tiny_bridge("neox"))
    # TransformerLens has this hook point and never fires it on GPT-NeoX.
    silent = {"blocks.0.attn.hook_rot_q": [lambda value, name: value * 0]}
    with pytest.raises(EngineError, match="hook_rot_q never fired, so nothing was done"):
        run_hooked(parts, [5, 60, 61], silent)


def test_one_head_of_a_grouped_rotary_model(model):
    """Head patches crashed outside GPT-2: here each changes its own slice of z and no other."""
    tokens = torch.tensor([[5, 60, 61, 9]])
    parts = Parts(model)
    weights = parts.slot("attn_out", 1)
    assert weights.end == "out"
    kept = {}

    def keep(value, hook):
        kept["z"] = value.clone()

    def zero(value, hook):
        value = value.clone()
        value[:, :, 2] = 0
        return value

    hooks = [("blocks.1.attn.hook_z", zero)]
    with torch.no_grad():
        changed = model.run_with_hooks(tokens, fwd_hooks=hooks)
        model.run_with_hooks(tokens, fwd_hooks=[("blocks.1.attn.hook_z", keep)])
    prompts = Prompts.from_tokens([[5, 60, 61, 9]], answers=[[7]], wrong_answers=[[17]])
    found = run(model, prompts, Sweep(Ablate(Site("z")), layer=[1], head=range(4)), LogitDiff())
    right = float(changed[0, -1, 7] - changed[0, -1, 17])
    values = found["value"].values[0, 0, :, 0]
    assert abs(values[2] - right) < 1e-5
    assert all(abs(values[h] - right) > 1e-4 for h in (0, 1, 3))
    assert kept["z"].shape[2] == 4


def test_two_positions_are_two_positions(model):
    """Collecting two positions returned mixed features."""
    from tlkit.engine.capture import capture

    prompts = Prompts.from_tokens([[5, 60, 61, 9, 10]], answers=[[7]], wrong_answers=[[17]])
    _, cache = model.run_with_cache(torch.tensor([[5, 60, 61, 9, 10]]))
    site = Site("resid_pre", layer=2, pos=(1, 2))
    found = next(iter(_arrays(capture(model, prompts, [site]))))
    expected = cache["resid_pre", 2][0, 1:3].detach().numpy()
    np.testing.assert_allclose(np.squeeze(found), expected, atol=1e-5)


def _arrays(captured):
    """The activations of a capture, whatever holds them."""
    if hasattr(captured, "data_vars"):
        return [value.values for value in captured.data_vars.values()]
    return [np.asarray(value) for value in captured.values()]


def test_memory_is_flat_over_a_sweep(model):
    """Memory grew over the iterations of a sweep."""
    prompts = pair([5, 60, 61, 62, 9, 10], [5, 60, 71, 62, 9, 10])
    sweep = Sweep(Patch(Site("z")), layer=range(3), head=range(4), pos=range(6))

    def once():
        run(model, prompts, sweep, LogitDiff())
        gc.collect()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    once()
    first = once()
    for _ in range(5):
        last = once()
    assert last - first < 20_000  # kilobytes


def test_nothing_leaks_through_the_mask_of_huge_scores(tiny_bridge):
    """A finite mask constant was too small for scores of -2e5."""
    model = tiny_bridge("llama")
    weight = Parts(model).slot("q", 0).module.weight
    kept = weight.detach().clone()
    try:
        with torch.no_grad():
            weight.mul_(1e5)
        pattern = patterns(model, [5, 60, 61, 62, 9], [0])[0]
    finally:
        with torch.no_grad():
            weight.copy_(kept)
    above = np.triu(np.ones((5, 5), bool), 1)
    assert (pattern[:, above] == 0).all()
    np.testing.assert_allclose(pattern.sum(-1), 1, atol=1e-5)


@pytest.mark.parametrize("mode", ["zero", "-inf"])
def test_row_with_no_key_left_is_zero_never_nan(model, mode):
    """All keys of row 3 are cut: z of that row is 0, so attention adds nothing there."""
    prompts = Prompts.from_tokens([[5, 60, 61, 9]], answers=[[7]], wrong_answers=[[17]])
    cut = Knockout(queries=(3,), keys=(0, 1, 2, 3), layers=(1,), mode=mode)
    found = run(model, prompts, Sweep.over([_condition(cut)]), LogitDiff())
    zero = Ablate(Site("z", layer=1, pos=3))
    right = run(model, prompts, Sweep.over([_condition(zero)]), LogitDiff())
    assert np.isfinite(found["value"].values).all()
    np.testing.assert_allclose(found["value"].values, right["value"].values, atol=1e-5)


def _condition(*interventions):
    from tlkit.spec.sweeps import Condition

    return Condition("one", interventions)


def test_cut_row_gives_no_weight_to_future_tokens(model):
    """A large negative constant on a whole row moved weight above the diagonal: the model's answer
    at position 2 must not depend on what stands after it."""

    def value(last):
        prompts = Prompts.from_tokens([[5, 60, 61, last]], answers=[[7]], wrong_answers=[[17]])
        metric = _at(2)
        cut = Knockout(queries=(2,), keys=(0, 1, 2), mode="-inf")
        return run(model, prompts, Sweep.over([_condition(cut)]), metric)["value"].item()

    assert value(9) == pytest.approx(value(200), abs=1e-6)


def _at(position):
    def metric(logits):
        return logits[0, 0, 7] - logits[0, 0, 17]

    metric.positions = position
    return metric


def test_patterns_are_there_whatever_attention_the_model_was_loaded_with():
    """Attention was None or of another shape under flash or SDPA."""
    from tlkit.models.load import HookedTransformer
    from tlkit.models.tiny import tiny, tiny_tokenizer

    hf = tiny("llama3")
    hf.set_attn_implementation("sdpa")
    model = HookedTransformer.from_pretrained(hf, tokenizer=tiny_tokenizer())
    pattern = patterns(model, [5, 60, 61, 9], [0, 1, 2])
    assert all(weights.shape == (4, 4, 4) for weights in pattern.values())
    for weights in pattern.values():
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)


def test_patch_applies_once_while_generating(model):
    """A patch of position 3 met tensors of length 1 in the steps that follow the prompt."""
    prompts = pair([5, 60, 61, 62, 9, 10], [5, 60, 61, 72, 9, 10])
    patch = Patch(Site("resid_pre", layer=1, pos=3))
    found = generate(model, prompts, _condition(patch), on="corrupted", max_new_tokens=4)
    _, cache = model.run_with_cache(torch.tensor(prompts.clean))

    def hook(value, hook):
        value = value.clone()
        value[:, 3] = cache["resid_pre", 1][:, 3]
        return value

    ids = list(prompts.corrupted[0])
    with torch.no_grad():
        for _ in range(4):
            hooks = [("blocks.1.hook_resid_pre", hook)]
            logits = model.run_with_hooks(torch.tensor([ids]), fwd_hooks=hooks)
            ids.append(int(logits[0, -1].argmax()))
    assert found == [ids[6:]]
    plain = generate(model, prompts, _condition(), on="corrupted", max_new_tokens=4)
    assert plain == greedy(model, [list(prompts.corrupted[0])], max_new_tokens=4)


def test_condition_at_every_step_holds_for_new_tokens(model):
    prompts = pair([5, 60, 61, 62, 9, 10], [5, 60, 61, 72, 9, 10])
    off = Ablate(Site("mlp_out", layer=2))
    found = generate(model, prompts, _condition(off), max_new_tokens=4, steps="every")
    ids = list(prompts.clean[0])
    with torch.no_grad():
        for _ in range(4):
            hooks = [("blocks.2.hook_mlp_out", lambda value, hook: torch.zeros_like(value))]
            logits = model.run_with_hooks(torch.tensor([ids]), fwd_hooks=hooks)
            ids.append(int(logits[0, -1].argmax()))
    assert found == [ids[6:]]
    with pytest.raises(SpecError, match="no source at new tokens"):
        generate(model, prompts, _condition(Patch(Site("z"))), steps="every")
