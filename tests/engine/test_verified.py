"""Estimates that are held to exact runs."""

import numpy as np
import pytest
from scipy.stats import spearmanr

import tlkit as tk
from tlkit.engine.verified import Verify, spearman
from tlkit.errors import SpecError

CLEAN = [[11, 42, 7, 300, 5, 8], [80, 9, 120, 33]]
CORRUPTED = [[11, 42, 77, 300, 5, 8], [80, 9, 121, 34]]
PAIRS = tk.Prompts.from_tokens(CLEAN, CORRUPTED, [[7], [9]], [[11], [12]])
SWEEP = tk.Sweep(tk.Patch(tk.Site("z")), layer=range(3), head=range(4), pos=range(1, 6))
ASKED = {"engine": "verified", "top": 9, "remainder": 6, "seed": 3}


@pytest.fixture(scope="module")
def found(tiny_bridge):
    """Datasets of three engines: exact, estimated, and estimated with exact runs."""
    model = tiny_bridge("llama3")
    exact = tk.run(model, PAIRS, SWEEP, tk.LogitDiff())
    guessed = tk.run(model, PAIRS, SWEEP, tk.LogitDiff(), engine="gradient")
    return exact, guessed, tk.run(model, PAIRS, SWEEP, tk.LogitDiff(), **ASKED)


def mean_effects(ds):
    """Magnitudes of mean effects, one a cell."""
    return np.abs(ds["effect"].isel(metric=0).mean("example").values.ravel())


def test_chosen_cells_are_exact_and_the_others_are_estimates(found):
    exact, guessed, verified = found
    run = verified["exact"] & ~guessed["exact"]
    assert int(run.sum()) == ASKED["top"] + ASKED["remainder"]
    expected = exact["value"].where(run, guessed["value"])
    np.testing.assert_allclose(verified["value"], expected, atol=1e-6)
    assert float(np.abs(exact["value"] - guessed["value"]).max()) > 1e-3


def test_the_largest_estimates_are_among_the_exact_cells(found):
    _, guessed, verified = found
    largest = np.argsort(-mean_effects(guessed))[: ASKED["top"]]
    assert verified["exact"].values.ravel()[largest].all()


def test_what_is_told_of_the_estimates_is_what_the_cells_say(found):
    exact, guessed, verified = found
    right, guess = mean_effects(exact), mean_effects(guessed)
    run = (verified["exact"] & ~guessed["exact"]).values.ravel()
    top = np.argsort(-guess)[: ASKED["top"]]
    sample = sorted({*np.flatnonzero(run)} - {*top})
    attrs = verified.attrs
    assert attrs["exact_top"], attrs["exact_sample"] == (9, 6)
    assert attrs["rank_agreement"] == pytest.approx(spearmanr(guess[run], right[run]).statistic)
    assert attrs["missed_largest"] == pytest.approx(right[sample].max(), abs=1e-5)
    assert attrs["missed_share"] == pytest.approx((right[sample] > right[top].min()).mean())
    twentieth = np.sort(right[run])[-min(20, run.sum())]
    assert attrs["missed_top_share"] == pytest.approx((right[sample] > twentieth).mean())


def test_another_seed_draws_another_sample(found, tiny_bridge):
    other = tk.run(tiny_bridge("llama3"), PAIRS, SWEEP, tk.LogitDiff(), **{**ASKED, "seed": 4})
    assert (other["exact"] != found[2]["exact"]).any()


def test_an_interrupted_run_goes_on_with_the_same_cells(found, tiny_bridge, tmp_path):
    store = tmp_path / "map.zarr"

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tk.run(
            tiny_bridge("llama3"), PAIRS, SWEEP, tk.LogitDiff(), store=store, progress=stop, **ASKED
        )
    whole = tk.run(tiny_bridge("llama3"), PAIRS, SWEEP, tk.LogitDiff(), store=store, **ASKED)
    np.testing.assert_allclose(whole["value"], found[2]["value"], atol=1e-6)
    assert (whole["exact"] == found[2]["exact"]).all()
    assert whole.attrs["rank_agreement"] == pytest.approx(found[2].attrs["rank_agreement"])


def test_an_audit_looks_at_exact_cells_only(tiny_bridge):
    ds = tk.run(tiny_bridge("llama3"), PAIRS, SWEEP, tk.LogitDiff(), audit=0.3, **ASKED)
    assert ds.attrs["audit_jobs"] > 3
    assert ds.attrs["audit_difference"] < 1e-5


@pytest.mark.parametrize(
    ("verify", "cells", "counts"),
    [
        (Verify(), 4860, (195, 49)),
        (Verify(), 100, (60, 15)),
        (Verify(), 12, (12, 0)),
        (Verify(top=5), 100, (5, 2)),
        (Verify(top=5, remainder=0), 100, (5, 0)),
        (Verify(top=5, remainder=99), 20, (5, 15)),
    ],
)
def test_how_many_cells_are_run(verify, cells, counts):
    assert verify.counts(cells) == counts


@pytest.mark.parametrize("asked", [{"top": 0}, {"remainder": -1}])
def test_impossible_numbers_are_refused(asked):
    with pytest.raises(SpecError, match="at least the top cell"):
        Verify(**asked)


def test_a_plan_counts_what_is_run(tiny_bridge):
    model = tiny_bridge("llama3")
    plans = {e: tk.plan(model, PAIRS, SWEEP, tk.LogitDiff(), engine=e).token_layers
             for e in ("packed", "gradient", "verified")}  # fmt: skip
    tokens = [sum(map(len, rows)) * model.cfg.n_layers for rows in (CLEAN, CORRUPTED)]
    passes = sum(tokens) + 3 * tokens[1]
    cells = int((~tk.run(model, PAIRS, SWEEP, tk.LogitDiff(), engine="gradient")["exact"]).sum())
    assert plans["gradient"] == passes
    rising = plans["packed"] - sum(tokens)
    assert plans["verified"] == passes + round(rising * sum(Verify().counts(cells)) / cells)


def test_rank_correlation_with_ties_is_scipys():
    generator = np.random.default_rng(0)
    left, right = generator.integers(0, 6, (2, 40)).astype(float)
    assert spearman(left, right) == pytest.approx(spearmanr(left, right).statistic)
    assert spearman(left, np.ones(40)) is None
