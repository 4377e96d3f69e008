"""Detectors on planted features, their intervals and tests, and what the model says itself."""

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss, roc_auc_score

from tlkit.studies.pathways import given, own_questions
from tlkit.studies.pathways.comparing import auc_interval, paired_auc
from tlkit.studies.pathways.detection import DETECTORS, Learning, detectors, measure
from tlkit.studies.pathways.examples import cut_written, examples_of
from tlkit.studies.pathways.group import Probing
from tlkit.studies.pathways.part import Part
from tlkit.studies.pathways.reweighting import scaled
from tlkit.studies.pathways.said import P_TRUE, p_true, token_logits
from tlkit.studies.pathways.settings import Settings
from tlkit.studies.pathways.task import Task

PROBING = Probing(folds=4, seeds=(0,), c=1.0)


def planted(count=240, seed=0, told=1.0):
    """Half of the examples' verdict reads the question, half the answer; a marker says which.

    With the question the answer says half of the opposite; without it, what is true.
    """
    rng = np.random.default_rng(seed)
    labels = rng.integers(2, size=count)
    reads, sign = np.arange(count) % 2 == 0, told * (2.0 * labels - 1)
    base = 0.3 * rng.normal(size=(1, count, 8))
    base[0, :, 0] += np.where(reads, sign, 0.0)
    base[0, :, 1] += np.where(reads, -0.5 * sign, sign)
    base[0, :, 2] += np.where(reads, 2.0, -2.0)
    cut = base.copy()
    cut[0, reads, 0] -= sign[reads]
    scaled = {0.5: np.stack([base, base]), 2.0: np.stack([base, base])}
    scaled[2.0][:, 0, :, 0] += np.where(reads, sign, 0.0)
    groups = [f"q{i}" for i in range(count)]
    return Learning(base, cut, scaled, labels, groups, PROBING), reads


def test_a_mixture_of_probes_beats_its_random_gate():
    given_to, _ = planted()
    found = detectors(given_to)
    auc = {name: roc_auc_score(given_to.labels, values) for name, values in found.items()}
    assert auc["mop"] > 0.95
    assert auc["mop_random_gate"] < auc["mop"] - 0.1
    assert auc["mop_vanilla_experts"] > auc["mop_random_gate"]
    loss = {name: log_loss(given_to.labels, values) for name, values in found.items()}
    # Experts of a random division are two single probes, each of half of the data.
    assert loss["mop"] < loss["probe"] < loss["mop_vanilla_experts"] - 0.01
    assert auc["reweighting"] >= auc["probe"] - 0.01
    names = given_to.groups
    test = paired_auc(found["mop"], found["mop_random_gate"], given_to.labels == 1, names, seed=0)
    assert test.p_value < 0.01


def test_scaling_that_helps_is_chosen():
    given_to, _ = planted(told=0.4)
    found = detectors(given_to)
    helped = roc_auc_score(given_to.labels, found["reweighting"])
    assert helped > roc_auc_score(given_to.labels, found["probe"]) + 0.02


def test_where_nothing_is_told_no_detector_tells():
    given_to, _ = planted(told=0.0, count=400)
    for name, values in detectors(given_to).items():
        assert roc_auc_score(given_to.labels, values) == pytest.approx(0.5, abs=0.1), name


def test_examples_of_one_pathway_leave_the_single_probe():
    given_to, _ = planted()
    same = Learning(
        given_to.base, given_to.base, given_to.scaled, given_to.labels, given_to.groups, PROBING
    )
    found = detectors(same)  # no verdict turns: nobody is Q-anchored
    for name in ("mop", "mop_random_gate", "reweighting"):
        expected = found["probe"] if name != "mop_random_gate" else found[name]
        np.testing.assert_allclose(found[name], expected)


def test_an_interval_is_around_the_auc_and_as_wide_as_theory_says():
    rng = np.random.default_rng(1)
    labels = np.arange(300) % 3 == 0
    scores = rng.normal(size=300) + labels
    found = auc_interval(scores, labels, [str(i) for i in range(300)], seed=0)
    area = roc_auc_score(labels, scores)
    assert found.mean == pytest.approx(area)
    positives, negatives = labels.sum(), (~labels).sum()
    q1, q2 = area / (2 - area), 2 * area**2 / (1 + area)  # Hanley and McNeil 1982
    variance = (area * (1 - area) + (positives - 1) * (q1 - area**2)
                + (negatives - 1) * (q2 - area**2)) / (positives * negatives)  # fmt: skip
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * np.sqrt(variance), rel=0.2)
    # Questions that are there ten times over are one draw each: a wider interval.
    names = [str(i // 10) for i in range(300)]
    blocks = np.repeat(rng.normal(size=30), 10)
    clustered = auc_interval(blocks + labels, labels, names, seed=0)
    alone = auc_interval(blocks + labels, labels, [str(i) for i in range(300)], seed=0)
    assert clustered.high - clustered.low > 0
    assert clustered.mean == alone.mean


def test_equal_detectors_do_not_differ_and_p_values_are_even_under_chance():
    rng = np.random.default_rng(2)
    labels, names = np.arange(80) % 2 == 0, [str(i) for i in range(80)]
    same = paired_auc(labels * 1.0, labels * 1.0, labels, names, seed=0)
    assert (same.difference, same.p_value) == (0.0, 1.0)
    found = [
        paired_auc(
            rng.normal(size=80) + labels, rng.normal(size=80) + labels, labels, names,
            seed=i, permutations=99,
        ).p_value
        for i in range(60)
    ]  # fmt: skip
    assert 0.3 < np.mean(found) < 0.7
    assert np.mean(np.array(found) < 0.05) < 0.15


@pytest.fixture(scope="module")
def task(tiny_bridge):
    model = tiny_bridge("llama3")
    answers = given(model, own_questions(60))
    settings = Settings(folds=2, seeds=(0,), min_examples=6, parts=("detect",), factors=(0.5, 2.0))
    return Task(model, answers, examples_of(answers, 0), Part.of(answers), settings)


def test_what_the_model_says_is_what_its_logits_say(task):
    logits, said = token_logits(task), p_true(task)
    for i, one in list(enumerate(task.examples))[:4]:
        with torch.no_grad():
            whole = task.model.original_model(torch.tensor([one.ids])).logits[0]
        own = [float(whole[p - 1, one.ids[p]]) for p in range(*one.exact)]
        np.testing.assert_allclose(logits[i], own, atol=1e-4)
        answer = task.answers.items[one.index]
        text = P_TRUE.format(question=answer.question.question, answer=answer.text)
        chat = task.model.tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True, tokenize=False
        )
        ids = task.model.tokenizer(chat, add_special_tokens=False)["input_ids"]
        chances = []
        for word in ("True", "False"):
            more = task.model.tokenizer(word, add_special_tokens=False)["input_ids"]
            with torch.no_grad():
                rows = task.model.original_model(torch.tensor([ids + more])).logits[0]
            log = rows.double().log_softmax(-1)
            at = range(len(ids), len(ids) + len(more))
            chances.append(np.exp(sum(float(log[p - 1, (ids + more)[p]]) for p in at)))
        assert said[i] == pytest.approx(chances[0] / sum(chances), rel=1e-3)


def test_scaled_edges_equal_a_hooked_loop(task):
    from tlkit.studies.pathways.activations import read_under

    some = [one for one in task.examples if len(one.ids) - one.prompt > 2][:3]
    for side in ("question", "answer"):
        found = read_under(
            task, [one.ids for one in some], [(one.last,) for one in some],
            {"x": [scaled(one, side, 2.0, range(3)) for one in some]},
        )["x"]  # fmt: skip
        for i, one in enumerate(some):
            if side == "question":
                edges = [(q, k) for k in one.question for q in range(one.question[-1] + 1,
                                                                     len(one.ids))]  # fmt: skip
            else:
                edges = [(edit.positions, edit.keys) for edit in
                         cut_written(one.prompt, len(one.ids), [0], "zero").edits]  # fmt: skip
                edges = [(q, k) for qs, ks in edges for q in qs for k in ks]

            def write(pattern, hook, edges=edges):
                for query, key in edges:
                    pattern[:, :, query, key] *= 2.0
                return pattern

            state = {}
            hooks = [(f"blocks.{k}.attn.hook_pattern", write) for k in range(3)]
            hooks.append(("blocks.2.hook_resid_post",
                          lambda x, hook, to=state: to.update(h=x[0, -1].clone())))  # fmt: skip
            with torch.no_grad():
                task.model.run_with_hooks(torch.tensor([one.ids]), fwd_hooks=hooks)
            np.testing.assert_allclose(found[2, i, 0], state["h"].numpy(), atol=2e-5)


def test_every_detector_is_measured(task):
    measure(task)
    rows = task.part.variables
    scores, wrong = rows["detector_score"][1], task.wrong
    index = [one.index for one in task.examples]
    for at, _ in enumerate(DETECTORS):
        own = scores[at, index].astype(np.float64)
        assert rows["detector_auc"][1][at] == pytest.approx(roc_auc_score(wrong, own), abs=1e-3)
    logits = token_logits(task)
    plain = {
        "p_true": 1 - p_true(task), "logit_mean": [-row.mean() for row in logits],
        "logit_min": [-min(row) for row in logits],
    }  # fmt: skip
    for name, values in plain.items():
        own = scores[DETECTORS.index(name), index]
        np.testing.assert_allclose(own, values, rtol=1e-5, err_msg=name)
    assert any(len(row) > 1 and np.ptp(row) > 0.1 for row in logits)
    low, high = rows["detector_auc_low"][1], rows["detector_auc_high"][1]
    assert (low <= rows["detector_auc"][1]).all()
    assert (rows["detector_auc"][1] <= high).all()
    assert rows["detector_p_value"][1][DETECTORS.index("probe")] == 1.0
