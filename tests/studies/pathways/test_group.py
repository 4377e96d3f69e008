"""The group reading against loops of plain hooks, and on models whose answer is known."""

import numpy as np
import pytest
import torch

from tlkit.models.bridge import Parts
from tlkit.prompts.spans import Span
from tlkit.studies.pathways.examples import Example
from tlkit.studies.pathways.group import Probing, delta_p, group_reading, read, turned

IDS = [(0, 40, 41, 300, 17, 5), (0, 290, 12, 33, 90, 91, 7, 8), (0, 50, 60, 70, 80)]


@pytest.fixture(scope="module")
def examples():
    """Exact questions of one and two tokens; controls that lie apart, and one that is missing."""
    keys = [((2, 3), (1, 4)), ((3,), (5,)), ((1, 2), None)]
    return [
        Example(i, ids, 4, q, control, Span(4, len(ids)), bool(i % 2), f"q{i}", "")
        for i, (ids, (q, control)) in enumerate(zip(IDS, keys, strict=True))
    ]


def hooked(model, ids, keys, k, mode):
    """The state behind block k with edges cut in blocks 0 to k, by TransformerLens's own hooks."""
    later = [p for p in range(min(keys) + 1, len(ids)) if p not in keys]

    def write(pattern, hook):
        for key in keys:
            pattern[:, :, later, key] = 0.0
        if mode == "-inf":
            pattern = pattern / pattern.sum(-1, keepdim=True)
        return pattern

    state = {}
    hooks = [(f"blocks.{layer}.attn.hook_pattern", write) for layer in range(k + 1)]
    hooks.append((f"blocks.{k}.hook_resid_post", lambda x, hook: state.update(h=x[0, -1].clone())))
    with torch.no_grad():
        model.run_with_hooks(torch.tensor([ids]), fwd_hooks=hooks)
    return state["h"].numpy()


@pytest.mark.parametrize("family", ["gpt2", "llama3", "qwen3"])
@pytest.mark.parametrize("mode", ["zero", "-inf"])
def test_one_cumulative_run_equals_a_loop_over_layers(tiny_bridge, family, mode, examples):
    model = tiny_bridge(family)
    found = read(Parts(model), examples, mode=mode)
    for i, example in enumerate(examples):
        for k in range(3):
            expected = hooked(model, example.ids, example.question, k, mode)
            np.testing.assert_allclose(found["knockout"][k, i], expected, atol=2e-5)
            if example.control is not None:
                expected = hooked(model, example.ids, example.control, k, mode)
                np.testing.assert_allclose(found["control"][k, i], expected, atol=2e-5)
    assert np.isnan(found["control"][:, 2]).all()
    assert np.abs(found["knockout"] - found["base"]).max() > 1e-2


def test_the_slow_engine_reads_the_same(tiny_bridge, examples):
    model = tiny_bridge("gemma3")
    fast, slow = (read(Parts(model), examples, mode="zero", packed=p) for p in (True, False))
    for name, values in fast.items():
        np.testing.assert_allclose(values, slow[name], atol=2e-5)


PROBING = Probing(folds=4, seeds=(0, 1), c=1.0)


def sorted_by(planted, examples, mode="zero"):
    features = read(Parts(planted), examples, mode=mode)
    wrong = np.array([one.wrong for one in examples])
    return features, group_reading(features, wrong, [one.group for one in examples], PROBING)


@pytest.mark.parametrize("mode", ["zero", "-inf"])
def test_a_verdict_that_reads_the_question_is_q_anchored(planted, planted_examples, mode):
    _, found = sorted_by(planted, planted_examples(120, lambda i: True), mode)
    assert found["probe_auc"][1:].mean() > 0.99
    for name in ("q_anchored", "q_anchored_held_out"):
        assert found[name][1:].mean() >= 0.95
        assert not found[name][0].any()  # nothing is read before block 1
    assert (found["delta_p"][1:] < -20).all()


def test_a_verdict_that_reads_the_answer_is_a_anchored(planted, planted_examples):
    features, found = sorted_by(planted, planted_examples(120, lambda i: False))
    assert found["probe_auc"].mean() > 0.99
    assert not found["q_anchored"].any()
    assert not found["q_anchored_held_out"].any()
    # Nothing flows from the question, so nothing changes at all.
    np.testing.assert_array_equal(features["knockout"], features["base"])
    np.testing.assert_array_equal(found["delta_p"], 0.0)
    np.testing.assert_array_equal(found["delta_p_held_out"], 0.0)


def test_a_mixture_is_sorted_example_by_example(planted, planted_examples):
    reads = [i % 2 == 0 for i in range(160)]
    features, found = sorted_by(planted, planted_examples(160, lambda i: reads[i]))
    for name in ("q_anchored", "q_anchored_held_out"):
        assert (found[name][1:] == np.array(reads)).mean() >= 0.95
    assert (found["delta_p_held_out"][1:, ::2] < -20).mean() > 0.95
    np.testing.assert_array_equal(found["delta_p_held_out"][:, 1::2], 0.0)
    # Random tokens of the question carry nothing.
    np.testing.assert_allclose(features["control"], features["base"], atol=1e-6)
    np.testing.assert_allclose(found["delta_p_control"], 0.0, atol=1e-3)


def test_shuffled_labels_are_at_chance(planted, planted_examples):
    _, found = sorted_by(planted, planted_examples(120, lambda i: i % 2 == 0))
    assert found["probe_auc_control"].mean() == pytest.approx(0.5, abs=0.12)


def test_delta_p_is_of_the_class_first_predicted():
    base, changed = np.array([0.9, 0.9, 0.2, 0.2]), np.array([0.4, 0.95, 0.7, 0.1])
    np.testing.assert_allclose(delta_p(base, changed), [-50, 5, -50, 10])
    assert turned(base, changed).tolist() == [True, False, True, False]


def test_groups_of_noise_differ_unless_other_probes_choose_them():
    """Nothing is told by these features: the gap of the plain groups is made by choosing them."""
    rng = np.random.default_rng(5)
    base = rng.normal(size=(1, 400, 24)).astype(np.float32)
    moved = base + rng.normal(size=base.shape).astype(np.float32)
    features = {"base": base, "knockout": moved, "control": base}
    wrong = np.arange(400) % 2
    found = group_reading(features, wrong, [f"q{i}" for i in range(400)], PROBING)

    def gap(suffix=""):
        turned_ones = found[f"q_anchored{suffix}"][0].astype(bool)
        change = found[f"delta_p{suffix}"][0]
        return change[turned_ones].mean() - change[~turned_ones].mean()

    assert gap() < -10
    assert abs(gap("_held_out")) < 3
