"""A packed engine that is wrong is found out, by how much it is wrong.

Faults to plant: drop what is not a number; audit the run with the given interventions as a cell.
"""

import contextlib

import numpy as np
import pytest

from tlkit.engine.edits import Compiler
from tlkit.engine.packed_values import PackedBackend
from tlkit.engine.run import run
from tlkit.errors import TlkitWarning
from tlkit.spec.interventions import Ablate, Patch
from tlkit.spec.metrics import KL, LogitDiff
from tlkit.spec.sites import Site
from tlkit.spec.sweeps import Sweep

SWEEP = Sweep(Patch(Site("z")), layer=range(3), head=range(4))
JOBS = 3 * 4 * 3


def off_by(monkeypatch, error):
    """Every packed value of the last metric is wrong by this much."""
    right = PackedBackend.run

    def wrong(self, jobs, finished, progress):
        def spoiled(indices, values):
            values[-1] += error
            finished(indices, values)

        right(self, jobs, spoiled, progress)

    monkeypatch.setattr(PackedBackend, "run", wrong)


@pytest.mark.parametrize(("error", "told"), [(0.25, 0.25), (np.nan, np.inf), (np.inf, np.inf)])
def test_a_wrong_value_is_told(tiny_bridge, ragged, monkeypatch, error, told):
    model = tiny_bridge("llama3")
    off_by(monkeypatch, error)
    finite = np.isfinite(error)
    with contextlib.nullcontext() if finite else pytest.warns(TlkitWarning, match="out of range"):
        found = run(model, ragged(model), SWEEP, [LogitDiff(), KL()], audit=0.1, seed=7)
    assert found.attrs["audit_difference"] == pytest.approx(told, abs=1e-5)
    assert found.attrs["audit_jobs"] == round(0.1 * JOBS)


def test_right_values_are_near_and_every_share_audits_something(tiny_bridge, ragged):
    model = tiny_bridge("llama3")
    for share, jobs in ((1e-6, 1), (1.0, JOBS)):
        found = run(model, ragged(model), SWEEP, LogitDiff(), audit=share)
        assert found.attrs["audit_jobs"] == jobs
        assert found.attrs["audit_difference"] < 1e-5
    assert "audit_jobs" not in run(model, ragged(model), SWEEP, LogitDiff()).attrs


def test_the_run_with_given_interventions_is_no_cell(tiny_bridge, ragged):
    model = tiny_bridge("llama3")
    held = Sweep(Patch(Site("z")), layer=[1], head=[0], given=[Ablate(Site("mlp_out", layer=0))])
    found = run(model, ragged(model), held, LogitDiff(), audit=1.0)
    assert found.attrs["audit_jobs"] == 3
    assert found.attrs["audit_difference"] < 1e-5


def test_cells_that_change_nothing_are_run_in_full(tiny_bridge, ragged, monkeypatch):
    """A cell that was wrongly taken to change nothing is found out."""
    model = tiny_bridge("llama3")
    early = Sweep(Patch(Site("resid_pre")), layer=[1], pos=range(9))
    found = run(model, ragged(model), early, LogitDiff(), audit=1.0)
    assert found.attrs["audit_jobs"] == 27
    assert found.attrs["audit_difference"] < 1e-5
    monkeypatch.setattr(
        Compiler, "_is_early", lambda self, one, example: self.trusting and one.site.pos == 8
    )
    found = run(model, ragged(model), early, LogitDiff(), audit=1.0)
    assert found.attrs["audit_difference"] > 1e-3


def test_where_nothing_can_be_audited_that_is_told(tiny_bridge, ragged):
    model = tiny_bridge("llama3")
    found = run(model, ragged(model), SWEEP, LogitDiff(), engine="gradient", audit=0.5)
    assert found.attrs["audit_jobs"] == 0
    assert np.isnan(found.attrs["audit_difference"])
