"""Metrics on logits written by hand."""

import math
from types import SimpleNamespace

import pytest
import torch

from tlkit.spec.callables import as_metrics
from tlkit.spec.metrics import KL, AnswerProb, AnswerRank, LogitDiff
from tlkit.spec.readout import Metric, Readout

INF = float("inf")


def readout(logits, base=None, answers=((1,), (2,)), wrong=((0,), (0,)), vocabulary=None,
            present=None):  # fmt: skip
    logits = torch.tensor(logits)
    prompts = SimpleNamespace(answers=answers, wrong_answers=wrong)
    base = logits if base is None else torch.tensor(base)
    present = torch.ones(logits.shape[:2], dtype=torch.bool) if present is None else present
    examples = tuple(range(len(logits)))
    ids = None if vocabulary is None else torch.tensor(vocabulary)
    return Readout(logits, base, examples, prompts, ids, present)


LOG = [math.log(p) for p in (0.5, 0.25, 0.25)]
OTHER = [math.log(p) for p in (0.25, 0.25, 0.5)]


def test_kl_in_nats():
    """0.5 ln(0.5/0.25) + 0.25 ln(0.25/0.5) = 0.25 ln 2, and not the other way round."""
    skewed = [math.log(p) for p in (0.1, 0.1, 0.8)]
    found = KL()(readout([[OTHER], [skewed]], base=[[LOG], [LOG]]))
    assert found[0] == pytest.approx(0.25 * math.log(2))
    forward = 0.5 * math.log(5) + 0.25 * math.log(2.5) + 0.25 * math.log(0.25 / 0.8)
    assert found[1] == pytest.approx(forward)


def test_kl_of_suppressed_tokens_is_finite():
    both = [0.0, 1.0, -INF]
    found = KL()(readout([[both], [[0.0, 1.0, 5.0]]], base=[[both], [both]]))
    assert found[0] == 0
    assert found[1] == pytest.approx(-math.log((1 + math.e) / (1 + math.e + math.exp(5))), rel=1e-5)


def test_kl_of_a_token_that_the_change_suppresses_is_infinite():
    assert KL()(readout([[[0.0, -INF]]], base=[[[0.0, 0.0]]], answers=((1,),)))[0] == INF


def test_logit_difference_in_the_columns_that_are_there():
    rows = [[[1.0, 2.0, 4.0]], [[8.0, 16.0, 32.0]]]
    answers, wrong = ((30,), (7,)), ((7,), (12,))
    found = LogitDiff()(readout(rows, answers=answers, wrong=wrong, vocabulary=(7, 12, 30)))
    assert found.tolist() == [4.0 - 1.0, 8.0 - 16.0]


def test_answer_probabilities_multiply_over_the_answers_own_tokens():
    rows = [[LOG, OTHER], [LOG, [0.0, 0.0, 0.0]]]
    present = torch.tensor([[True, True], [True, False]])
    both = readout(rows, answers=((1, 2), (0,)), present=present)
    assert AnswerProb()(both).tolist() == pytest.approx([0.25 * 0.5, 0.5])
    assert AnswerProb(log=True)(both).tolist() == pytest.approx([math.log(0.125), math.log(0.5)])
    assert (AnswerProb().unit, AnswerProb(log=True).unit) == ("probability", "nats")


def test_rank_counts_the_tokens_before_it():
    assert AnswerRank()(readout([[[3.0, 1.0, 2.0]], [[3.0, 1.0, 5.0]]])).tolist() == [2, 0]


def test_a_function_may_return_a_number_or_a_tensor():
    for function in (lambda logits: 3, lambda logits: torch.tensor([3.0]), lambda logits: 3.0):
        metric = as_metrics(function)[0]
        assert isinstance(metric, Metric)
        assert metric(readout([[LOG], [LOG]])).tolist() == [3, 3]
