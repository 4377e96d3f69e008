"""Lenses, held to TransformerLens's own, to Hugging Face's logits, and to patterns by hand."""

import numpy as np
import pytest
import torch
from transformer_lens import head_detector
from transformer_lens.tools import analysis

import tlkit as tk
from tlkit.errors import EngineError, SpecError
from tlkit.models.tiny import tiny, tiny_tokenizer
from tlkit.studies import attribution

CLEAN = [[11, 42, 7, 300, 5, 8], [80, 9, 120, 33]]
PROMPTS = tk.Prompts.from_tokens(CLEAN, None, [[7], [9]], [[11], [12]])
FAMILIES = ["gpt2", "gemma3", "gptj", "bloom", "qwen3", "mixtral"]


def hugging_face(family):
    """Each prompt's logits at its last position, by transformers alone."""
    hf = tiny(family)
    return [hf(torch.tensor([row])).logits[0] for row in CLEAN]


@pytest.mark.parametrize("family", ["llama3", "gemma2"])
def test_each_layers_logits_are_transformer_lenss(tiny_bridge, family):
    model = tiny_bridge(family)
    ds = tk.lenses.logit_lens(model, PROMPTS)
    for i, row in enumerate(CLEAN):
        right, wrong = (PROMPTS.answers[i][0], PROMPTS.wrong_answers[i][0])
        theirs = analysis.logit_lens(model, torch.tensor([row]), targets=[right, wrong])
        difference = theirs.values[1:, 0, ..., 0] - theirs.values[1:, 0, ..., 1]
        found = ds["value"].sel(metric="logit_diff", example=i)
        np.testing.assert_allclose(found, difference.reshape(-1), atol=1e-5)


def test_the_last_layer_says_what_the_model_says(tiny_bridge):
    model = tiny_bridge("llama3")
    metrics = [tk.LogitDiff(), tk.AnswerProb(), tk.KL()]
    ds = tk.lenses.logit_lens(model, PROMPTS, metrics)
    for i, logits in enumerate(hugging_face("llama3")):
        right, wrong = PROMPTS.answers[i][0], PROMPTS.wrong_answers[i][0]
        last = ds.isel(layer=-1, example=i)
        probs = logits.softmax(-1)
        expected = [logits[-1, right] - logits[-1, wrong], probs[-1, right], 0.0]
        np.testing.assert_allclose(last["value"], np.array(expected, dtype=float), atol=1e-5)
        length = len(logits)
        np.testing.assert_allclose(last["top_prob"][:length], probs.max(-1).values, atol=1e-5)
        spread = -(probs * probs.log()).sum(-1)
        np.testing.assert_allclose(last["entropy"][:length], spread, atol=1e-4)
        assert last["top_prob"][length:].isnull().all()
        assert (last["top_token"][length:] == "").all()
    assert (ds["value"].sel(metric="kl").isel(layer=0) > 1e-3).all()


def test_tokens_have_their_names(tiny_bridge):
    from tlkit.models.text import token_labels

    model = tiny_bridge("gpt2")
    ds = tk.lenses.logit_lens(model, PROMPTS, layers=[2])
    ids = hugging_face("gpt2")[1].argmax(-1)
    assert ds["top_token"].values[0, : len(ids), 1].tolist() == token_labels(model.tokenizer, ids)
    assert ds["layer"].values.tolist() == [2]


def test_answers_of_several_tokens_are_read_where_they_stand(tiny_bridge):
    model = tiny_bridge("llama")
    prompts = tk.Prompts.from_tokens(CLEAN, None, [[7, 8, 9], [9]])
    ds = tk.lenses.logit_lens(model, prompts, tk.AnswerProb(log=True), tokens=False)
    logits = tiny("llama")(torch.tensor([CLEAN[0] + [7, 8]])).logits[0].log_softmax(-1)
    by_hand = logits[5, 7] + logits[6, 8] + logits[7, 9]
    assert float(ds["value"][0, -1, 0]) == pytest.approx(float(by_hand), abs=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_parts_add_up_to_hugging_faces_logit_difference(tiny_bridge, family):
    ds = tk.lenses.direct_logit_attribution(tiny_bridge(family), PROMPTS)
    total = ds["attribution"].sum(("site", "layer")) + ds["embed_attribution"] + ds["bias"]
    heads = ds["head_attribution"].sum("head") + ds["attn_bias"]
    np.testing.assert_allclose(heads, ds["attribution"].sel(site="attn_out"), atol=1e-6)
    for i, logits in enumerate(hugging_face(family)):
        right, wrong = PROMPTS.answers[i][0], PROMPTS.wrong_answers[i][0]
        difference = float(logits[-1, right] - logits[-1, wrong])
        assert float(total[i]) == pytest.approx(difference, abs=1e-5)
        assert float(ds["logit_diff"][i]) == pytest.approx(difference, abs=1e-5)
    assert float(np.abs(ds["head_attribution"]).max()) > 1e-2


def test_heads_write_all_of_attention_where_it_has_no_bias(tiny_bridge):
    for family in ("qwen3", "gemma3"):
        ds = tk.lenses.direct_logit_attribution(tiny_bridge(family), PROMPTS)
        np.testing.assert_allclose(ds["attn_bias"], 0.0, atol=1e-5)


@pytest.mark.parametrize("unit", ["component", "head"])
def test_attributions_are_transformer_lenss_on_rewritten_weights(tiny_bridge, unit):
    """TransformerLens folds the final norm into the unembedding, and takes off means."""
    ds = tk.lenses.direct_logit_attribution(tiny_bridge("llama3"), PROMPTS[0])
    rewritten = tk.HookedTransformer.from_pretrained(tiny("llama3"), tokenizer=tiny_tokenizer())
    rewritten.enable_compatibility_mode(disable_warnings=True)
    theirs = analysis.direct_logit_attribution(
        rewritten, torch.tensor(CLEAN[:1]), answer_tokens=7, incorrect_tokens=11, unit=unit
    )
    found = dict(zip(theirs.labels, theirs.attribution[:, 0].tolist(), strict=True))
    ours = ds.isel(example=0)
    for layer in range(3):
        if unit == "component":
            for site in ("attn_out", "mlp_out"):
                expected = found[f"{layer}_{site}"]
                assert float(ours["attribution"].sel(site=site)[layer]) == pytest.approx(
                    expected, abs=1e-4
                )
        else:
            for head in range(4):
                expected = found[f"L{layer}H{head}"]
                assert float(ours["head_attribution"][layer, head]) == pytest.approx(
                    expected, abs=1e-4
                )


def test_without_wrong_answers_the_logit_itself_is_attributed(tiny_bridge):
    prompts = tk.Prompts.from_tokens(CLEAN, None, [[7], [9]])
    ds = tk.lenses.direct_logit_attribution(tiny_bridge("gpt2"), prompts)
    for i, logits in enumerate(hugging_face("gpt2")):
        assert float(ds["logit_diff"][i]) == pytest.approx(
            float(logits[-1, prompts.answers[i][0]]), abs=1e-5
        )


def test_parts_that_do_not_add_up_are_an_error(tiny_bridge, monkeypatch):
    found = attribution._states

    def scaled(parts, sequences):
        at = found(parts, sequences)
        at["mlp_out", 1] = [rows * 1.5 for rows in at["mlp_out", 1]]
        return at

    monkeypatch.setattr(attribution, "_states", scaled)
    with pytest.raises(EngineError, match="add up to a logit difference that is off by"):
        tk.lenses.direct_logit_attribution(tiny_bridge("llama"), PROMPTS)


@pytest.mark.parametrize(
    "norm",
    [torch.nn.LayerNorm(16, eps=1e-5), torch.nn.RMSNorm(16, eps=1e-6), torch.nn.Identity()],
    ids=lambda norm: type(norm).__name__,
)
def test_a_norm_with_its_scale_held_is_linear_and_itself_at_its_vector(norm):
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter += torch.randn(16, generator=generator) * 0.3
        left, right = torch.randn(2, 16, generator=generator)
        held = attribution.Frozen.at(norm, left + right)
        both = held.apply(left) + held.apply(right) + held.bias
        torch.testing.assert_close(both, norm(left + right), atol=1e-5, rtol=1e-4)
        direction = torch.randn(16, generator=generator)
        torch.testing.assert_close(held.apply(left) @ direction, left @ held.pulled(direction))


def test_another_function_is_no_norm():
    with pytest.raises(EngineError, match="neither a layer norm nor an RMS norm"):
        attribution.Frozen.at(torch.nn.Tanh(), torch.linspace(-2, 3, 16))


def test_head_scores_are_weights_on_the_right_pairs(tiny_bridge):
    model, length = tiny_bridge("llama3"), 6
    ds = tk.lenses.head_scores(model, n=2, length=length, seed=5)
    from tlkit.models.bridge import Parts
    from tlkit.studies.head_scores import repeated_tokens

    row = repeated_tokens(model, Parts(model), 2, length, 5)[1]
    assert row[0] == model.tokenizer.bos_token_id
    assert row[1 : 1 + length] == row[1 + length :]
    assert len(set(row)) == length + 1
    _, cache = model.run_with_cache(torch.tensor([row]))
    pattern = cache["pattern", 1][0, 3].numpy()
    second = range(1 + length, 1 + 2 * length)
    by_hand = {
        "induction": np.mean([pattern[q, q - length + 1] for q in second]),
        "previous_token": np.mean([pattern[q, q - 1] for q in range(1, len(row))]),
        "duplicate_token": np.mean([pattern[q, q - length] for q in second]),
    }
    for kind, expected in by_hand.items():
        found = ds["score"].sel(kind=kind, layer=1, head=3, example=1)
        assert float(found) == pytest.approx(expected, abs=1e-5)


def test_head_scores_are_transformer_lenss_per_query(tiny_bridge):
    """TransformerLens divides by all queries, tlkit by those that have a key that counts."""
    model, length = tiny_bridge("gpt2"), 5
    ds = tk.lenses.head_scores(model, n=1, length=length)
    from tlkit.models.bridge import Parts
    from tlkit.studies.head_scores import repeated_tokens

    row = torch.tensor(repeated_tokens(model, Parts(model), 1, length, 0))
    _, cache = model.run_with_cache(row)
    target = head_detector.get_induction_head_detection_pattern(row)
    theirs = head_detector.compute_head_attention_similarity_score(
        cache["pattern", 0][0, 2], target, exclude_bos=False, exclude_current_token=False,
        error_measure="mul",
    )  # fmt: skip
    found = float(ds["score"].sel(kind="induction", layer=0, head=2, example=0))
    assert found * length / row.shape[1] == pytest.approx(theirs, abs=1e-5)


def test_the_main_verb_reaches_every_lens(tiny_bridge):
    model = tiny_bridge("llama")
    for lens in ("logit_lens", "direct_logit_attribution"):
        assert tk.lenses.run(model, PROMPTS, lens).attrs["study"] == lens
    assert tk.lenses.run(model, lens="head_scores", n=1, length=4).attrs["length"] == 4


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (lambda m: tk.lenses.run(m, PROMPTS, "tuned"), "no lens 'tuned'"),
        (lambda m: tk.lenses.run(m), "needs prompts"),
        (lambda m: tk.lenses.logit_lens(m, PROMPTS, site="z"), "reads resid_pre"),
        (lambda m: tk.lenses.logit_lens(m, PROMPTS, layers=[3]), "layers 0 to 2"),
        (
            lambda m: tk.lenses.logit_lens(m, tk.Prompts.from_tokens(CLEAN), tokens=False),
            "nothing to read",
        ),
        (
            lambda m: tk.lenses.direct_logit_attribution(m, tk.Prompts.from_tokens(CLEAN)),
            "needs answers",
        ),
        (
            lambda m: tk.lenses.direct_logit_attribution(
                m, tk.Prompts.from_tokens(CLEAN, None, [[7, 8], [9]])
            ),
            "answers of one token",
        ),
        (lambda m: tk.lenses.head_scores(m, length=600), "length=600 is too much"),
        (lambda m: tk.lenses.head_scores(m, n=0), "two tokens at least"),
    ],
)
def test_what_cannot_be_read_is_refused(tiny_bridge, asked, message):
    with pytest.raises(SpecError, match=message):
        asked(tiny_bridge("llama"))
