"""A curve goes through the means, and its band is the interval that it says."""

import numpy as np
import pytest
import scipy.stats
import xarray as xr

from tlkit.errors import SpecError
from tlkit.plots.curves import curve
from tlkit.results.schema import build


@pytest.fixture
def rng():
    return np.random.default_rng(3)


@pytest.fixture
def ds(rng):
    values = rng.normal(size=(2, 2, 2, 4, 12))
    values[0, 0, 0, :, 8:] = np.nan
    return build(
        {"delta_p": (("model", "dataset", "anchor", "layer", "example"), values)},
        {
            "model": ["8B", "32B"],
            "dataset": ["PopQA", "<NQ>"],
            "anchor": ["Q-anchored", "A-anchored"],
            "layer": [2, 3, 5, 9],
        },
        axes=["anchor"],
    )


def lines_of(figure):
    return [trace for trace in figure.data if trace.fill is None]


def bands_of(figure):
    return [trace for trace in figure.data if trace.fill is not None]


def test_a_line_is_the_mean_and_its_band_the_t_interval(ds):
    one = ds["delta_p"].isel(model=0, dataset=1, anchor=0)
    figure = curve(one, band="90%")
    values = one.values
    np.testing.assert_allclose(lines_of(figure)[0].y, values.mean(-1))
    low, high = scipy.stats.t.interval(
        0.9, 11, loc=values.mean(-1), scale=scipy.stats.sem(values, axis=-1)
    )
    band = bands_of(figure)[0]
    np.testing.assert_allclose(band.y[:4], high)
    np.testing.assert_allclose(band.y[4:8], low[::-1])
    assert list(band.x[:8]) == [0, 1, 2, 3, 3, 2, 1, 0]
    assert figure.layout.yaxis.title.text == "ΔP (percentage points)"
    assert figure.layout.xaxis.ticktext == ("2", "3", "5", "9")
    assert lines_of(figure)[0].name == "mean (n = 12)"


def test_colour_says_one_dimension_and_dash_the_other(ds):
    figure = curve(ds, lines="dataset", dash="anchor", panel="model")
    lines = lines_of(figure)
    assert len(lines) == 8
    assert [line.line.dash for line in lines[:4]] == ["solid", "dash", "solid", "dash"]
    assert lines[0].line.color == lines[1].line.color != lines[2].line.color
    assert lines[0].name == "PopQA, Q-anchored (n = 8-12)"
    assert lines[2].name == "&lt;NQ&gt;, Q-anchored (n = 12)"
    np.testing.assert_allclose(lines[7].y, ds["delta_p"].values[1, 1, 1].mean(-1))
    assert [a.text for a in figure.layout.annotations] == ["8B", "32B"]
    assert [line.showlegend for line in lines] == [True] * 4 + [False] * 4
    assert lines[4].legendgroup == lines[0].legendgroup


def test_n_follows_the_gaps(ds):
    gaps = ds["delta_p"].isel(model=0, dataset=1, anchor=0).copy()
    gaps[2, 1:] = np.nan
    gaps[3, 6:] = np.nan
    figure = curve(gaps)
    line, band = lines_of(figure)[0], bands_of(figure)[0]
    assert line.name == "mean (n = 1-12)"
    assert line.text[3].endswith("n = 6")
    assert line.y[2] == gaps.values[2, 0]
    assert [x for x in band.x if x is not None] == [0, 1, 1, 0, 3, 3]  # no band at n = 1


def test_repeats_are_averaged_before_the_band(ds, rng):
    values = rng.normal(size=(3, 10, 2))
    two = build({"kl": (("layer", "example", "seed"), values)})
    figure = curve(two)
    np.testing.assert_allclose(lines_of(figure)[0].y, values.mean((1, 2)))
    assert lines_of(figure)[0].name == "mean (n = 10)"
    by_seed = curve(two, over="seed")
    assert lines_of(by_seed)[0].name == "mean (n = 2)"


def test_without_repeats_or_band_there_is_none():
    values = np.array([0.5, 0.25])
    figure = curve(build({"kl": (("layer",), values)}))
    assert bands_of(figure) == []
    assert list(figure.data[0].y) == [0.5, 0.25]
    repeated = build({"kl": (("layer", "example"), np.ones((2, 3)))})
    assert bands_of(curve(repeated, band=None)) == []


def test_true_and_false_are_shares():
    flips = build({"q_anchored": (("layer", "example"), [[True, False], [True, True]])})
    assert list(lines_of(curve(flips, variable="q_anchored"))[0].y) == [0.5, 1.0]


def test_what_does_not_fit_is_refused(ds):
    with pytest.raises(SpecError, match="choose one place along model and anchor"):
        curve(ds, lines="dataset")
    with pytest.raises(SpecError, match="band of '2 sigma' is no level"):
        curve(ds, band="2 sigma")
    with pytest.raises(SpecError, match="no dimension 'head'"):
        curve(ds, "head", lines="dataset", dash="anchor", panel="model")


def test_panels_share_a_scale_or_have_their_own():
    data = xr.DataArray(
        [[[1.0, 2.0]], [[10.0, 20.0]]], dims=("group", "condition", "pos"),
        coords={"group": ["a", "b"], "condition": ["None"], "pos": [0, 1]},
        attrs={"units": "fraction"}, name="attention_weight",
    )  # fmt: skip
    shared = curve(data, "pos", lines="condition", panel="group")
    own = curve(data, "pos", lines="condition", panel="group", one_scale=False)
    assert shared.layout.yaxis2.matches == "y"
    assert own.layout.yaxis2.matches is None
