"""The question cut off in single layers and in windows, against loops of plain hooks."""

import numpy as np
import pytest
import torch

from tlkit.prompts.spans import Span
from tlkit.studies.answers import Answers
from tlkit.studies.pathways.by_layers import cut_names, measure, read_cuts
from tlkit.studies.pathways.examples import Example
from tlkit.studies.pathways.part import Part
from tlkit.studies.pathways.settings import Settings
from tlkit.studies.pathways.task import Task

IDS = [(0, 40, 41, 300, 17, 5), (0, 290, 12, 33, 90, 91, 7, 8)]
KEYS = [((2, 3), (1, 4)), ((3,), (5,))]


def task_of(model, examples, **choices):
    part = Part(len(examples))
    return Task(model, Answers("x", ()), examples, part, Settings(**choices))


@pytest.fixture(scope="module")
def examples():
    return [
        Example(i, ids, 4, q, control, Span(4, len(ids)), bool(i % 2), f"q{i}", "")
        for i, (ids, (q, control)) in enumerate(zip(IDS, KEYS, strict=True))
    ]


def hooked(model, ids, keys, blocks, k, mode):
    """The state behind block k with edges cut in some blocks, by TransformerLens's own hooks."""
    later = [p for p in range(min(keys) + 1, len(ids)) if p not in keys]

    def write(pattern, hook):
        for key in keys:
            pattern[:, :, later, key] = 0.0
        if mode == "-inf":
            pattern = pattern / pattern.sum(-1, keepdim=True)
        return pattern

    state = {}
    hooks = [(f"blocks.{layer}.attn.hook_pattern", write) for layer in blocks]
    hooks.append((f"blocks.{k}.hook_resid_post", lambda x, hook: state.update(h=x[0, -1].clone())))
    with torch.no_grad():
        model.run_with_hooks(torch.tensor([ids]), fwd_hooks=hooks)
    return state["h"].numpy()


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("family", ["gpt2", "qwen3"])
def test_every_cut_equals_hooked_loops(tiny_bridge, family, packed, examples):
    model = tiny_bridge(family)
    task = task_of(model, examples, window=2)
    task.packed = packed
    found = read_cuts(task)
    for i, example in enumerate(examples):
        for k in range(3):
            blocks = {
                "cumulative": range(k + 1), "single": [k], "window": range(max(0, k - 1), k + 1)
            }  # fmt: skip
            for scope, several in blocks.items():
                for mode in ("zero", "-inf"):
                    for keys, suffix in ((example.question, ""),
                                         (example.control, " of random tokens")):  # fmt: skip
                        expected = hooked(model, example.ids, keys, several, k, mode)
                        values = found[f"{scope} {mode}{suffix}"][k, i]
                        np.testing.assert_allclose(values, expected, atol=2e-5)
    assert np.abs(found["single zero"][2] - found["cumulative zero"][2]).max() > 1e-3
    assert np.abs(found["single zero"] - found["single -inf"]).max() > 1e-3


def test_the_block_that_reads_the_question_is_found(planted, planted_examples):
    """Block 1 alone moves the bit: cutting block 2 alone does nothing, a window over both does."""
    examples = planted_examples(120, lambda i: True)
    task = task_of(planted, examples, window=2, folds=3, seeds=(0,), c=1.0, modes=("zero",))
    measure(task)
    names = cut_names(task.settings.scopes, task.settings.modes)
    cut = dict(zip(names, task.part.variables["p_wrong_cut"][1], strict=True))
    control = task.part.variables["p_wrong_cut_control"][1]
    # Cutting block 0 alone touches nothing: so it shows what each probe says with nothing cut.
    wrong = np.array([one.wrong for one in examples])
    turned = {name: ((values > 0.5) != wrong).mean(-1) for name, values in cut.items()}
    assert turned["single zero"][1] > 0.95
    assert turned["single zero"][2] < 0.05
    assert turned["window zero"][2] > 0.95
    assert turned["cumulative zero"][1:].min() > 0.95
    assert (((control > 0.5) != wrong)[:, 1:]).mean() < 0.05


def test_too_few_answers_are_a_reason_not_an_error(tiny_bridge, examples):
    task = task_of(tiny_bridge("gpt2"), examples)
    measure(task)
    assert task.part.variables == {}
    assert "Cutting by layer needs 30 right and 30 wrong answers" in task.part.reasons[0]
