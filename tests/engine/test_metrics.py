"""Metrics against Hugging Face's logits, token by token, and their closed forms."""

import numpy as np
import pytest
import torch

from tlkit.engine.run import run
from tlkit.errors import SpecError
from tlkit.models.tiny import tiny
from tlkit.prompts.prompts import Prompts
from tlkit.spec.interventions import Ablate, Patch
from tlkit.spec.metrics import KL, AnswerProb, AnswerRank, LogitDiff
from tlkit.spec.sites import Site
from tlkit.spec.sweeps import Condition, Sweep

ENGINES = ("packed", "reference")
CLEAN = [[0, 40, 41, 300, 17], [0, 290, 12, 33, 90, 91, 7]]
CORRUPTED = [[0, 44, 41, 300, 17], [0, 290, 99, 33, 90, 91, 7]]
ANSWERS = [[21, 22, 23], [24]]
HEADS = (1, 2)


@pytest.fixture(scope="module")
def hf():
    return tiny("qwen2")


@pytest.fixture(scope="module")
def model(tiny_bridge):
    return tiny_bridge("qwen2")


@pytest.fixture
def without_a_head():
    """What the sweep below does, done to a Hugging Face model's weights."""

    def edited(head):
        model = tiny("qwen2")
        model.model.layers[1].self_attn.o_proj.weight[:, 16 * head : 16 * (head + 1)] = 0
        return model

    return edited


def sweep():
    return Sweep(Ablate(Site("z", layer=1)), head=HEADS)


def log_probs(hf, ids):
    with torch.no_grad():
        return hf(torch.tensor([ids])).logits[0].log_softmax(-1)


def chain(hf, ids, answer):
    """The answer's log-probability, each token predicted from those before it."""
    total, ids = 0.0, list(ids)
    for token in answer:
        total += float(log_probs(hf, ids)[-1, token])
        ids.append(token)
    return total


@pytest.mark.parametrize("engine", ENGINES)
def test_answer_prob_is_the_chain_of_its_tokens(model, hf, without_a_head, engine):
    prompts = Prompts.from_tokens(CLEAN, CORRUPTED, ANSWERS)
    found = run(model, prompts, sweep(), [AnswerProb(log=True)], engine=engine)
    plain = run(model, prompts, sweep(), [AnswerProb()], engine=engine)
    for example, answer in enumerate(ANSWERS):
        for which, ids in (("clean", CLEAN), ("corrupted", CORRUPTED)):
            expected = chain(hf, ids[example], answer)
            assert float(found[which][0, example]) == pytest.approx(expected, abs=1e-5)
            assert float(plain[which][0, example]) == pytest.approx(np.exp(expected), rel=1e-4)
        for i, head in enumerate(HEADS):
            expected = chain(without_a_head(head), CORRUPTED[example], answer)
            assert float(found["value"][0, i, example]) == pytest.approx(expected, abs=1e-5)
    assert plain["value"].attrs["units"] == "metric_units"
    assert plain["metric_units"].values.tolist() == ["probability"]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_patch_reaches_the_answers_tokens_too(model, hf, engine):
    """With all of the clean stream, the corrupted prompt's chain is the clean prompt's."""
    prompts = Prompts.from_tokens(CLEAN, CORRUPTED, ANSWERS)
    whole = Sweep.over([Condition("all", (Patch(Site("resid_pre", layer=1)),))])
    found = run(model, prompts, whole, AnswerProb(log=True), engine=engine)
    for example, answer in enumerate(ANSWERS):
        expected = chain(hf, CLEAN[example], answer)
        assert float(found["value"][0, 0, example]) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
def test_kl_logit_difference_and_rank(model, hf, without_a_head, engine):
    first = [row[:1] for row in ANSWERS]
    prompts = Prompts.from_tokens(CLEAN, CORRUPTED, first, [[31], [32]])
    metrics = [KL(), LogitDiff(), AnswerRank()]
    found = run(model, prompts, sweep(), metrics, engine=engine)["value"].values
    for example, ids in enumerate(CORRUPTED):
        base = log_probs(hf, ids)[-1]
        for i, head in enumerate(HEADS):
            changed = log_probs(without_a_head(head), ids)[-1]
            kl = float((base.exp() * (base - changed)).sum())
            difference = float(changed[first[example][0]] - changed[[31, 32][example]])
            rank = int((changed > changed[first[example][0]]).sum())
            assert kl > 1e-3
            assert found[0, i, example] == pytest.approx(kl, abs=1e-5)
            assert found[1, i, example] == pytest.approx(difference, abs=1e-5)
            assert found[2, i, example] == rank


@pytest.mark.parametrize("engine", ENGINES)
def test_kl_of_the_unchanged_run_is_zero_and_never_negative(model, engine):
    prompts = Prompts.from_tokens(CLEAN, CORRUPTED)
    free = Sweep(Patch(Site("resid_pre")), layer=(0,), pos=(0, 1))
    found = run(model, prompts, free, KL(), engine=engine)
    np.testing.assert_array_equal(found["value"][0, 0, 0], 0)
    assert float(found["value"].min()) >= 0
    np.testing.assert_allclose(found["corrupted"], 0, atol=1e-7)


@pytest.mark.parametrize("engine", ENGINES)
def test_effect_and_recovered(model, engine):
    """Raw values, both baselines, and NaN where clean and corrupted hardly differ."""
    same = [CORRUPTED[0], CLEAN[1]]  # the first pair is no pair
    prompts = Prompts.from_tokens([CORRUPTED[0], CLEAN[1]], [same[0], CORRUPTED[1]], [[21], [24]],
                                  [[31], [32]])  # fmt: skip
    found = run(model, prompts, sweep(), LogitDiff(), engine=engine)
    value, clean, corrupted = (found[name].values for name in ("value", "clean", "corrupted"))
    np.testing.assert_allclose(found["effect"], value - corrupted[:, None], atol=1e-7)
    recovered = (value - corrupted[:, None]) / (clean - corrupted)[:, None]
    assert np.isnan(found["recovered"].values[..., 0]).all()
    np.testing.assert_allclose(found["recovered"].values[..., 1], recovered[..., 1], rtol=1e-4)


@pytest.mark.parametrize("engine", ENGINES)
def test_own_functions_get_what_they_declare_in_their_order(model, hf, engine):
    def difference(logits):
        assert logits.shape == (1, 1, 2)
        return logits[0, 0, 0] - logits[0, 0, 1]

    difference.positions, difference.vocabulary = -1, (400, 21)

    def spread(logits):
        return logits.std()

    def early(logits):
        assert logits.shape == (1, 2, 512)
        return logits[0, 0, 5] - logits[0, 1, 6]

    early.positions = (-3, 1)
    metrics = {"difference": difference, "spread": spread, "early": early}
    found = run(model, Prompts.from_tokens(CORRUPTED), sweep(), metrics, engine=engine)
    assert found["metric"].values.tolist() == ["difference", "spread", "early"]
    for example, ids in enumerate(CORRUPTED):
        with torch.no_grad():
            logits = hf(torch.tensor([ids])).logits[0]
        expected = [
            float(logits[-1, 400] - logits[-1, 21]),
            float(logits.std()),
            float(logits[len(ids) - 3, 5] - logits[1, 6]),
        ]
        np.testing.assert_allclose(found["base"][:, example], expected, atol=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
def test_what_metrics_refuse(model, engine):
    several = Prompts.from_tokens(CLEAN, CORRUPTED, ANSWERS, [[31], [32]])
    with pytest.raises(
        SpecError, match=r"one token; in example 0 the answer has 3. Use AnswerProb"
    ):
        run(model, several, sweep(), LogitDiff(), engine=engine)
    alone = Prompts.from_tokens(CLEAN, CORRUPTED, [[21], [24]])
    with pytest.raises(SpecError, match="needs wrong answers, and these prompts have none"):
        run(model, alone, sweep(), LogitDiff(), engine=engine)
    for metric in (AnswerProb(), AnswerRank()):
        with pytest.raises(SpecError, match="needs answers, and these prompts have none"):
            run(model, Prompts.from_tokens(CLEAN), sweep(), metric, engine=engine)
    with pytest.raises(SpecError, match=r"names of their own; got kl, kl"):
        run(model, alone, sweep(), [KL(), KL()], engine=engine)
    with pytest.raises(SpecError, match=r"3 is not a metric: pass tk.LogitDiff"):
        run(model, alone, sweep(), 3, engine=engine)
