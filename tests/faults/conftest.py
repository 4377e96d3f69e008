"""A small sweep with several groups, which the faults of this folder befall."""

import numpy as np
import pytest

import tlkit.engine.packed_values
from tlkit.engine.packed import Packed
from tlkit.engine.run import run
from tlkit.spec.interventions import Patch
from tlkit.spec.metrics import LogitDiff
from tlkit.spec.sites import Site
from tlkit.spec.sweeps import Sweep


class Swept:
    """A sweep on a model: its whole result, how to run it, and how many jobs have been run."""

    def __init__(self, model, prompts, counted):
        self.model, self.prompts, self.counted = model, prompts, counted
        self.sweep = Sweep(Patch(Site("resid_pre")), layer=range(3), pos=range(14))
        self.whole = self.run()
        self.jobs = len(counted)

    def run(self, store=None, **more):
        self.counted.clear()
        return run(self.model, self.prompts, self.sweep, LogitDiff(), store=store, **more)

    def same(self, found):
        np.testing.assert_allclose(found["value"], self.whole["value"], atol=1e-6)
        np.testing.assert_allclose(found["effect"], self.whole["effect"], atol=1e-6)


@pytest.fixture
def swept(tiny_bridge, monkeypatch):
    """A sweep whose runs are counted, in groups of few tokens."""
    from tlkit.checks.samples import sample_pairs
    from tlkit.models.bridge import Parts

    monkeypatch.setattr(tlkit.engine.packed_values, "GROUP_ROWS", 20)
    monkeypatch.setattr(tlkit.engine.packed_values, "CHUNK", 20)
    counted, plain = [], Packed.__init__

    def init(self, parts, base, sources, several, **options):
        counted.extend(several)
        plain(self, parts, base, sources, several, **options)

    monkeypatch.setattr(Packed, "__init__", init)
    model = tiny_bridge("llama3")
    return Swept(model, sample_pairs(Parts(model), seed=0), counted)


@pytest.fixture
def stop_after():
    """A function that makes a progress function which is Ctrl+C after some groups."""

    def make(groups):
        calls = []

        def progress(done, total):
            calls.append(done)
            if len(calls) == groups:
                raise KeyboardInterrupt

        return progress

    return make
