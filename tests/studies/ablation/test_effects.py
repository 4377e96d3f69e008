"""Every effect against a plain Hugging Face loop, and against a model that one can work out.

Faults to plant: KL the other way round; the loss one token off; means over padding or over the
answers' tokens; a head's neighbour ablated; MLPs forgotten in blocks; windows one layer short.
"""

import numpy as np
import pytest
import torch
from transformer_lens.model_bridge.sources import build_bridge_from_module
from transformers import GPT2Config, GPT2LMHeadModel

from tlkit.errors import TlkitWarning
from tlkit.prompts.prompts import Prompts
from tlkit.studies import ablation

PROMPTS = [[0, 40, 41, 300, 17], [0, 290, 12, 33, 90, 91, 8], [0, 50, 77]]
ANSWERS = [[21, 22], [23], [24, 25, 26]]
BRANCHES = ("attn_out", "mlp_out", "block")
WRITES = {"attn_out": ["attn_out"], "mlp_out": ["mlp_out"], "block": ["attn_out", "mlp_out"]}
LAYERS, HEADS, LONGEST = 3, 4, 1
FAMILIES = ["gpt2", "gptj", "neox", "llama3", "qwen3", "opt", "gemma3"]


def mean(plain, component, layer, rows, per_position=False):
    acts = [plain.acts(ids, component, layer).double().numpy() for ids in rows]
    if not per_position:
        return np.concatenate(acts).mean(0)
    longest = max(map(len, acts))
    return np.stack([np.mean([a[p] for a in acts if len(a) > p], 0) for p in range(longest)])


def in_place(plain, value, component, layer, rows):
    if value == "zero":
        return 0.0
    return mean(plain, component, layer, rows, value == "per position")


def study(model, value, components, **more):
    prompts = Prompts.from_tokens(PROMPTS, answers=ANSWERS)
    pooled = value != "per position"
    name = value if pooled else "mean"
    return ablation.run(model, prompts, value=name, components=components, pooled=pooled, **more)


def check(ds, i, where, expected, prefix=""):
    for name, wanted in zip(("kl", "loss", "answer_prob"), expected, strict=True):
        found = float(ds[prefix + name].isel(model=0, example=i).sel(where))
        # A probability of many tokens of a random model is tiny: relative to itself.
        assert found == pytest.approx(wanted, abs=1e-5 if name != "answer_prob" else 0, rel=1e-3)


@pytest.mark.parametrize("value", ["zero", "mean", "per position"])
@pytest.mark.parametrize("family", FAMILIES)
def test_equals_a_plain_loop_over_hugging_face(tiny_bridge, plain_model, family, value):
    plain = plain_model(family)
    ds = study(tiny_bridge(family), value, [*BRANCHES, "heads"])
    for i, (ids, answer) in enumerate(zip(PROMPTS, ANSWERS, strict=True)):
        whole = [*ids, *answer[:-1]]
        base = plain.logits(whole)
        _, loss, probability = plain.effects(base, base, ids, answer)
        assert float(ds["loss_base"][0, i]) == pytest.approx(loss, abs=1e-5)
        assert float(ds["answer_prob_base"][0, i]) == pytest.approx(probability, rel=1e-3)
        for layer in range(LAYERS):
            for site in BRANCHES:
                changes = {
                    (name, layer): plain.put(in_place(plain, value, name, layer, PROMPTS))
                    for name in WRITES[site]
                }
                expected = plain.effects(base, plain.logits(whole, changes), ids, answer)
                # The longest prompt alone is at its last position: its own mean is itself.
                assert expected[0] > 5e-5 or (value == "per position" and i == LONGEST)
                check(ds, i, {"site": site, "layer": layer}, expected)
            z = in_place(plain, value, "z", layer, PROMPTS)
            for head in range(HEADS):
                changed = plain.logits(whole, {("z", layer): plain.put_head(z, head)})
                check(ds, i, {"layer": layer, "head": head},
                      plain.effects(base, changed, ids, answer), "head_")  # fmt: skip


@pytest.mark.parametrize("value", ["zero", "mean", "resample", "skip"])
@pytest.mark.parametrize("family", ["llama3", "gptj", "gemma3"])
def test_the_slow_twin_gives_the_same(tiny_bridge, family, value):
    components = [*BRANCHES, *([] if value == "skip" else ["heads"])]
    fast, slow = (
        study(tiny_bridge(family), value, components, engine=engine)
        for engine in ("packed", "reference")
    )
    assert (fast.attrs["engine"], slow.attrs["engine"]) == ("packed", "reference")
    for name in fast.data_vars:
        np.testing.assert_allclose(fast[name], slow[name], atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("family", ["llama3", "gptj", "gemma3", "opt"])
def test_a_skipped_block_is_not_there(tiny_bridge, plain_model, family):
    """The block hands on what it got, whatever is inside."""
    plain = plain_model(family)
    ds = study(tiny_bridge(family), "skip", ["block"], metrics=["kl", "loss"])
    zero = study(tiny_bridge(family), "zero", ["block"], metrics=["kl", "loss"])
    np.testing.assert_allclose(ds["kl"], zero["kl"], atol=1e-6)

    def hand_on(module, args, kwargs, out):
        stream = args[0] if args else kwargs["hidden_states"]
        return stream if torch.is_tensor(out) else (stream, *out[1:])

    for i, ids in enumerate(PROMPTS):
        base = plain.logits(ids)
        for layer in range(LAYERS):
            handle = plain.blocks[layer].register_forward_hook(hand_on, with_kwargs=True)
            kl, loss, _ = plain.effects(base, plain.logits(ids), ids)
            handle.remove()
            assert float(ds["kl"][0, 0, layer, i]) == pytest.approx(kl, abs=1e-5)
            assert float(ds["loss"][0, 0, layer, i]) == pytest.approx(loss, abs=1e-5)


def test_windows_ablate_their_layers_together(tiny_bridge, plain_model):
    plain = plain_model("qwen3")
    ds = study(tiny_bridge("qwen3"), "mean", BRANCHES, windows=2)
    assert ds["layer"].values.tolist() == ["0-1", "1-2"]
    for i, (ids, answer) in enumerate(zip(PROMPTS, ANSWERS, strict=True)):
        whole = [*ids, *answer[:-1]]
        base = plain.logits(whole)
        for first in (0, 1):
            for site in BRANCHES:
                changes = {
                    (name, layer): plain.put(mean(plain, name, layer, PROMPTS))
                    for name in WRITES[site]
                    for layer in (first, first + 1)
                }
                expected = plain.effects(base, plain.logits(whole, changes), ids, answer)
                check(ds, i, {"site": site, "layer": f"{first}-{first + 1}"}, expected)


def test_means_are_those_of_the_reference(tiny_bridge, plain_model):
    plain, others = plain_model("llama3"), [[0, 9, 10, 11], [0, 200, 201]]
    reference = Prompts.from_tokens(others)
    for pooled in (True, False):
        ds = ablation.run(
            tiny_bridge("llama3"), Prompts.from_tokens(PROMPTS), value="mean", pooled=pooled,
            components="attn_out", reference=reference, metrics="kl",
        )  # fmt: skip
        for i, ids in enumerate(PROMPTS):
            change = {("attn_out", 1): plain.put(mean(plain, "attn_out", 1, others, not pooled))}
            kl, _, _ = plain.effects(plain.logits(ids), plain.logits(ids, change), ids)
            assert float(ds["kl"][0, 0, 1, i]) == pytest.approx(kl, abs=1e-5)
    assert ds.attrs["reference"] == "given"
    assert reference.hash() in ds.attrs["reference_hashes"]


def drawn(plain, kls, rows, others, layer=1):
    """Which of ``others`` stood in for each prompt, from its KLs."""
    found = []
    for i, ids in enumerate(rows):
        base = plain.logits(ids)
        close = []
        for j, other in enumerate(others):
            change = {("mlp_out", layer): plain.put(plain.acts(other, "mlp_out", layer))}
            kl, _, _ = plain.effects(base, plain.logits(ids, change), ids)
            if kl == pytest.approx(float(kls[i]), abs=1e-5):
                close.append(j)
        assert len(close) == 1, close
        found.append(close[0])
    return found


@pytest.mark.parametrize("given", [False, True])
def test_resampling_is_seeded_and_never_takes_the_prompt_itself(tiny_bridge, plain_model, given):
    plain, rows = plain_model("llama3"), [*PROMPTS, [0, 8, 9, 10]]
    # A reference that holds the prompts, in another order and with one more.
    others = [*rows[::-1], [0, 444, 5, 6]] if given else rows
    seen = set()
    for seed in range(4):
        several = [
            ablation.run(
                tiny_bridge("llama3"), Prompts.from_tokens(rows), value="resample", seed=seed,
                components="mlp_out", metrics="kl",
                reference=Prompts.from_tokens(others) if given else None,
            )["kl"].values[0, 0, 1]
            for _ in range(2)
        ]  # fmt: skip
        np.testing.assert_array_equal(*several)
        found = drawn(plain, several[0], rows, others)
        assert all(others[j] != rows[i] for i, j in enumerate(found))
        seen.add(tuple(found))
    assert len(seen) > 1


WIDTH, VOCAB, SCALE = 8, 6, 0.5


@pytest.fixture(scope="module")
def constant():
    """Only the MLP of layer 0 adds anything: e0 - e1, the same everywhere; one logit reads it."""
    config = GPT2Config(
        vocab_size=VOCAB, n_positions=16, n_embd=WIDTH, n_layer=2, n_head=2, n_inner=4,
        layer_norm_epsilon=1e-12, tie_word_embeddings=False,
    )  # fmt: skip
    model = GPT2LMHeadModel(config).eval().requires_grad_(False)
    for name, weight in model.named_parameters():
        weight.fill_(float("ln" in name and name.endswith("weight")))
    model.transformer.h[0].mlp.c_proj.bias[:2] = torch.tensor([1.0, -1.0])
    model.lm_head.weight[0, 0] = SCALE
    return build_bridge_from_module(model, "GPT2LMHeadModel", hf_config=model.config)


@pytest.mark.parametrize("engine", ["packed", "reference"])
def test_a_model_one_can_work_out(constant, engine):
    # The norm makes sqrt(WIDTH/2) of the 1 in e0: the logits are (s, 0, 0, …); without it, all 0.
    s = SCALE * np.sqrt(WIDTH / 2)
    log_p = np.array([s, *[0.0] * (VOCAB - 1)]) - np.log(np.exp(s) + VOCAB - 1)
    known = float((np.exp(log_p) * (log_p + np.log(VOCAB))).sum())
    ids, answer = [3, 0, 1, 0], [0, 2]
    prompts = Prompts.from_tokens([ids, ids[::-1]], answers=[answer, answer])
    ds = ablation.run(constant, prompts, components=[*BRANCHES, "heads"], engine=engine)
    for site, layer in (("mlp_out", 0), ("block", 0)):
        cell = ds.sel(site=site, layer=layer).isel(model=0, example=0)
        assert float(cell["kl"]) == pytest.approx(known, abs=1e-6)
        assert float(cell["loss"]) == pytest.approx(np.log(VOCAB), abs=1e-6)
        assert float(cell["answer_prob"]) == pytest.approx(VOCAB**-2, rel=1e-5)
    np.testing.assert_allclose(ds["loss_base"][0, 0], -log_p[[0, 1, 0]].mean(), atol=1e-6)
    np.testing.assert_allclose(ds["loss_base"][0, 1], -log_p[[1, 0, 3]].mean(), atol=1e-6)
    np.testing.assert_allclose(ds["answer_prob_base"], np.exp(log_p[[0, 2]].sum()), rtol=1e-5)
    others = ds["kl"].sel(site=["attn_out", "mlp_out"]).values.copy()
    others[:, 1, 0] = 0
    np.testing.assert_allclose(others, 0, atol=1e-7)
    np.testing.assert_allclose(ds["head_kl"], 0, atol=1e-7)
    same = ablation.run(constant, prompts, value="mean", engine=engine)  # it is its own mean
    np.testing.assert_allclose(same["kl"], 0, atol=1e-6)


def test_a_prompt_of_one_token_has_no_loss(tiny_bridge):
    prompts = Prompts.from_tokens([[5], [5, 6]])
    with pytest.warns(TlkitWarning, match="the unchanged clean run of example 0"):
        ds = ablation.run(tiny_bridge("gpt2"), prompts, components="mlp_out")
    assert np.isnan(ds["loss"].values[..., 0]).all()
    assert np.isnan(ds["loss_base"].values[0, 0])
    assert np.isfinite(ds["loss"].values[..., 1]).all()
    assert (ds["kl"] > 0).all()


def test_effects_are_never_negative_and_nan_safe():
    from tlkit.spec.metrics import KL
    from tlkit.spec.readout import Readout

    never, low = -torch.inf, -200.0
    base = torch.tensor([[1.0, 2.0, never, 0.0], [1.0, 2.0, low, 0.0], [0.0, 0.0, never, never]])
    changed = torch.tensor([[2.0, 1.0, never, 0.0], [1.0, 2.0, never, 0.0], [0.0, 0.0, 5.0, never]])
    present = torch.ones(3, 1, dtype=torch.bool)
    readout = Readout(changed[:, None], base[:, None], (0, 1, 2), None, None, present)
    found = KL()(readout)
    p = base[0, [0, 1, 3]].double().softmax(0)
    q = changed[0, [0, 1, 3]].double().softmax(0)
    expected = [float((p * (p / q).log()).sum()), 0.0, float(np.log((2 + np.exp(5)) / 2))]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    # Rounding alone would make some of many equal distributions' divergences negative.
    same = torch.linspace(-5, 5, 999)[None] * torch.linspace(0.1, 3, 200)[:, None]
    moved = same + torch.linspace(0.1, 9, 200)[:, None]
    terms = same.softmax(-1) * (same.log_softmax(-1) - moved.log_softmax(-1))
    assert (terms.sum(-1) < 0).any()
    present = torch.ones(200, 1, dtype=torch.bool)
    rows = tuple(range(200))
    assert (KL()(Readout(moved[:, None], same[:, None], rows, None, None, present)) >= 0).all()
