"""Edits of blocks 0 to k, for every k, against a run of its own for each k."""

import numpy as np
import pytest

from tlkit.engine.cumulative import cumulative
from tlkit.engine.edits import Compiler
from tlkit.engine.run import run
from tlkit.engine.sequences import Sequences
from tlkit.models.bridge import Parts
from tlkit.prompts.prompts import Prompts
from tlkit.spec.attention import Knockout
from tlkit.spec.metrics import AnswerProb
from tlkit.spec.sweeps import Condition, Sweep

CLEAN = [[0, 40, 41, 300, 17], [0, 290, 12, 33, 90, 91, 7], [0, 50, 60, 70, 80, 90]]
ANSWERS = [[7, 8], [300], [12, 13, 14]]
SPANS = {"subject": [(1, 3), (2, 4), None], "verb": [(3, 4), (5, 6), (4, 5)]}


@pytest.fixture(scope="module")
def prompts():
    return Prompts.from_tokens(CLEAN, answers=ANSWERS, spans=SPANS)


def measured(model, prompts, *knockouts, layers=(0, 1, 2), **how):
    parts, sequences = Parts(model), Sequences(prompts, "clean", forced=True)
    compiler = Compiler(sequences, parts.n_layers, parts.n_heads, parts.n_kv_heads)
    worked = [
        [compiler.work_out(Condition("cut", (one,)), i) for i in range(len(prompts))]
        for one in knockouts
    ]
    return cumulative(parts, sequences, AnswerProb(), worked, layers, **how)


@pytest.mark.parametrize("family", ("gpt2", "gptj", "llama3", "qwen3", "gemma3"))
@pytest.mark.parametrize("mode", ("zero", "-inf"))
def test_every_k_equals_a_sweep_over_layer_lists(tiny_bridge, family, mode, prompts):
    model = tiny_bridge(family)
    knockouts = [Knockout(keys=name, mode=mode) for name in SPANS]
    values, _, base = measured(model, prompts, *knockouts)
    for cell, knockout in enumerate(knockouts):
        sweep = Sweep(knockout, layers=[tuple(range(k + 1)) for k in range(3)])
        loop = run(model, prompts, sweep, AnswerProb(), engine="reference")
        np.testing.assert_allclose(values[cell], loop["value"].values[0], rtol=1e-4, atol=1e-9)
        np.testing.assert_allclose(base, loop["clean"].values[0], rtol=1e-4)
    assert np.isnan(values[0, :, 2]).all()
    assert (np.abs(values[1] / base - 1) > 1e-3).any(axis=1).all()


def test_the_slow_twin_and_small_groups_agree(tiny_bridge, prompts):
    model, knockout = tiny_bridge("llama"), Knockout(keys="verb")
    values, _, base = measured(model, prompts, knockout)
    slow, _, slow_base = measured(model, prompts, knockout, packed=False)
    small, _, _ = measured(model, prompts, knockout, budget=1)
    np.testing.assert_allclose(values, slow, rtol=1e-4)
    np.testing.assert_allclose(base, slow_base, rtol=1e-4)
    np.testing.assert_allclose(values, small, rtol=1e-5)


def test_some_layers_and_edits_that_begin_late(tiny_bridge, prompts):
    model = tiny_bridge("llama")
    values, _, _ = measured(model, prompts, Knockout(keys="verb"))
    some, _, _ = measured(model, prompts, Knockout(keys="verb"), layers=(0, 2))
    np.testing.assert_allclose(some, values[:, [0, 2]], rtol=1e-5)
    late, _, base = measured(model, prompts, Knockout(keys="verb", layers=[1]))
    np.testing.assert_array_equal(late[0, 0], base)
    np.testing.assert_allclose(late[0, 1], late[0, 2], rtol=1e-5)
    assert (late[0, 1] != base).all()


def test_where_no_edge_can_be_cut_the_value_is_the_base_runs(tiny_bridge):
    prompts = Prompts.from_tokens(CLEAN[:2], answers=[[7], [8]])
    for packed in (True, False):
        values, _, base = measured(tiny_bridge("llama"), prompts, Knockout(keys=-1), packed=packed)
        np.testing.assert_array_equal(values, np.broadcast_to(base, values.shape))
