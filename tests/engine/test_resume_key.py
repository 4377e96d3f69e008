"""A kept run is gone on with only if everything that decides its numbers is the same."""

import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
import torch

import tlkit.engine.run
from tlkit.engine.edits import Compiler
from tlkit.engine.run import run
from tlkit.engine.saved import content_key
from tlkit.errors import SpecError
from tlkit.models.load import HookedTransformer
from tlkit.spec.callables import as_metrics
from tlkit.spec.interventions import Ablate, Intervention, Patch, Steer
from tlkit.spec.metrics import KL, AnswerProb, LogitDiff
from tlkit.spec.sites import Site
from tlkit.spec.sweeps import Condition, Sweep

SCALE = 2.0


@pytest.fixture(scope="module")
def model():
    """A model of this file's own, since its weights are changed."""
    return HookedTransformer.from_pretrained("tiny:llama3", device="cpu")


def sweep(layers=(0, 1), site="attn_out", **options):
    return Sweep(Patch(Site(site)), layer=layers, pos=(8,), **options)


def first_logit(logits):
    return SCALE * logits[0, -1, 5]


def changed(key):
    """Runs that differ from the one of `key` in one thing each."""
    return {
        "cells": {"sweep": sweep(layers=(0, 2))},
        "site": {"sweep": sweep(site="mlp_out")},
        "given": {"sweep": sweep(given=[Ablate(Site("z", layer=0))])},
        "order": {"sweep": sweep(layers=(1, 0))},
        "metric": {"metrics": [KL()]},
        "metric's setting": {"metrics": [AnswerProb(log=True)]},
        "base": {"on": "clean"},
        "engine": {"engine": "reference"},
    }[key]


@pytest.mark.parametrize(
    "key", ["cells", "site", "given", "order", "metric", "metric's setting", "base", "engine"]
)
def test_another_run_is_refused(model, ragged, tmp_path, key):
    prompts, store = ragged(model), tmp_path / "kept.zarr"
    plain = {"sweep": sweep(), "metrics": [AnswerProb()], "on": "corrupted", "engine": "packed"}
    run(model, prompts, **plain, store=store)
    with pytest.raises(SpecError, match=r"kept.zarr holds another run .*choose another"):
        run(model, prompts, **{**plain, **changed(key)}, store=store)
    kept = run(model, prompts, **plain, store=store)  # the store is as it was
    assert kept.attrs["complete"]


def test_other_weights_and_other_prompts_are_refused(model, ragged, tmp_path):
    prompts, store = ragged(model), tmp_path / "kept.zarr"
    first = run(model, prompts, sweep(), LogitDiff(), store=store)
    with pytest.raises(SpecError, match="holds another run"):
        run(model, prompts[:2], sweep(), LogitDiff(), store=store)
    weight = model.blocks[0].mlp.out.original_component.weight
    weight.data[0, 0] += 1e-3  # behind autograd's back
    try:
        with pytest.raises(SpecError, match="holds another run"):
            run(model, prompts, sweep(), LogitDiff(), store=store)
    finally:
        weight.data[0, 0] -= 1e-3
    weight.data.copy_(HookedTransformer.from_pretrained("tiny:llama3", device="cpu")
                      .blocks[0].mlp.out.original_component.weight)  # fmt: skip
    again = run(model, prompts, sweep(), LogitDiff(), store=store)
    np.testing.assert_array_equal(first["value"], again["value"])


def key_of(*metrics):
    return content_key({"spec": "one"}, as_metrics(list(metrics)))


def test_an_own_metric_is_its_code_and_what_it_reads(monkeypatch):
    def scaled(by, token=5):
        def metric(logits):
            return by * logits[0, -1, token]

        return metric

    assert key_of(scaled(2.0)) == key_of(scaled(2.0))
    assert key_of(scaled(2.0)) != key_of(scaled(3.0))
    assert key_of(scaled(2.0)) != key_of(scaled(2.0, token=6))
    declared = scaled(2.0)
    declared.positions = -1
    assert key_of(declared) != key_of(scaled(2.0))
    before = key_of(first_logit)
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 3.0)
    assert key_of(first_logit) != before


def helper(value):
    return deeper(value)


def deeper(value):
    return SCALE * value


def through_helpers(logits):
    return helper(logits[0, -1, 5])


class Weighed:
    """A metric that is an object, and shows itself as every other of its kind."""

    def __init__(self, weights):
        self.weights = weights

    def __call__(self, logits):
        return (logits[0, -1] * self.weights).sum()

    def __repr__(self):
        return "Weighed()"


def test_an_own_metric_is_its_helpers_and_its_arrays(monkeypatch):
    before = key_of(through_helpers)
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 3.0)
    assert key_of(through_helpers) != before
    weights = torch.ones(4096)
    other = weights.clone()
    other[2000] = 2.0
    assert key_of(Weighed(weights)) == key_of(Weighed(weights.clone()))
    assert key_of(Weighed(weights)) != key_of(Weighed(other))

    def over(array):
        return lambda logits: float(logits[0, -1, 0]) * array[2000]

    assert key_of(over(weights.numpy())) == key_of(over(weights.numpy().copy()))
    assert key_of(over(weights.numpy())) != key_of(over(other.numpy()))
    assert key_of(over([weights])) != key_of(over([other]))


def test_an_own_metric_is_what_its_code_does():
    """Nothing that these read differs, only what they do with it; a plain edit of a cell."""
    assert key_of(lambda logits: logits[0, -1, 5]) == key_of(lambda logits: logits[0, -1, 5])
    assert key_of(lambda logits: logits[0, -1, 5]) != key_of(lambda logits: -logits[0, -1, 5])
    assert key_of(lambda logits: logits[0, -1, 5]) != key_of(lambda logits: logits[0, -1, 6])


def own_intervention(by):
    """A class of one's own; each call makes it anew, as editing a notebook's cell does."""

    @dataclass(frozen=True)
    class Mine(Intervention):
        def edit(self, act, source):
            return act * by

    return Mine(Site("attn_out", layer=1))


def test_an_own_intervention_is_its_code_and_what_it_reads(model, ragged, tmp_path):
    prompts, store = ragged(model), tmp_path / "own.zarr"

    def asked(by, **options):
        return run(model, prompts, Sweep(own_intervention(by)), LogitDiff(), **options)

    first = asked(0.5, store=store)
    np.testing.assert_array_equal(asked(0.5, store=store)["value"], first["value"])
    with pytest.raises(SpecError, match="holds another run"):
        asked(-7.0, store=store)
    assert not np.array_equal(asked(-7.0)["value"], first["value"])


def test_an_own_metric_has_the_same_key_in_another_process():
    code = (
        "from tlkit.engine.saved import content_key\n"
        "from tlkit.spec.callables import as_metrics\n"
        "BY = 3\n"
        "def own(logits, token=5):\n"
        "    return BY * logits[0, -1, token] - max(logits[0, 0, i] for i in range(3))\n"
        "print(content_key({}, as_metrics({'a': own, 'b': lambda logits: logits.sum()})))\n"
    )
    one, other = (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        for _ in range(2)
    )
    assert one.returncode == 0, one.stderr
    assert one.stdout == other.stdout


def test_planted_a_key_that_forgets_the_cells(model, ragged, tmp_path, monkeypatch):
    """Then another run's numbers are given out, which the comparison below sees."""
    prompts, store = ragged(model), tmp_path / "kept.zarr"
    run(model, prompts, sweep(), LogitDiff(), store=store)
    whole = tlkit.engine.run.content_key

    def forgetful(attrs, metrics, interventions):
        return whole({**attrs, "spec": "", "cells": 0}, metrics, interventions)

    other = sweep(site="mlp_out")
    expected = run(model, prompts, other, LogitDiff())["value"].values
    monkeypatch.setattr(tlkit.engine.run, "content_key", forgetful)
    store = tmp_path / "forgetful.zarr"
    run(model, prompts, sweep(), LogitDiff(), store=store)
    found = run(model, prompts, other, LogitDiff(), store=store)["value"].values
    assert np.abs(found - expected).max() > 1e-3


def test_planted_a_patch_taken_for_free_behind_another_edit(model, ragged, monkeypatch):
    """Both engines believe it, so only the comparison with the edit written out sees it."""
    prompts = ragged(model)
    site = Site("resid_pre", layer=2, pos=1)
    shift = Steer(Site("embed", pos=1), torch.linspace(-1, 1, 64), scale=5.0)
    undone = Sweep.over([Condition("both", (shift, Patch(site, source="corrupted")))])
    alone = Sweep.over([Condition("shift", (shift,))])
    plain = run(model, prompts, undone, LogitDiff())["value"].values
    assert np.abs(plain - run(model, prompts, alone, LogitDiff())["value"].values).max() > 1e-4
    monkeypatch.setattr(Compiler, "_with_reach", lambda self, edits, example: list(edits))
    for engine in ("packed", "reference"):
        wrong = run(model, prompts, undone, LogitDiff(), engine=engine)["value"].values
        assert np.abs(wrong - plain).max() > 1e-4
