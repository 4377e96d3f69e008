"""A heat map holds the dataset's numbers, in the right cell, under the right label."""

import numpy as np
import pytest

from tlkit.errors import SpecError
from tlkit.plots.heatmaps import heatmap
from tlkit.plots.style import MARK
from tlkit.results.schema import build, token_coords

TOKENS = [["<bos>", " the", "<b>", " the"], ["<bos>", " a", " the"]]
SOURCE = [["<bos>", " the", " cat", " the"], ["<bos>", "", " the"]]


@pytest.fixture
def ds():
    values = np.arange(2 * 3 * 4 * 2, dtype=float).reshape(2, 3, 4, 2) - 10
    values[0, 0, 1] = np.nan
    values[:, :, 3, 1] = np.nan
    return build(
        {
            "effect": (("metric", "layer", "pos", "example"), values),
            "answer_prob": (("layer", "pos"), np.full((3, 4), 0.25)),
        },
        {
            "metric": ["logit_diff", "kl"],
            "metric_units": ("metric", ["logits", "nats"]),
            "layer": [5, 6, 9],
            **token_coords(TOKENS, SOURCE),
        },
    )


def test_cells_are_means_over_examples_in_layer_and_position_order(ds):
    figure = heatmap(ds)
    cells = figure.data[0]
    expected = ds["effect"].sel(metric="logit_diff").mean("example").transpose("layer", "pos")
    np.testing.assert_allclose(cells.z, expected)
    assert cells.z[2][3] == ds["effect"].values[0, 2, 3, 0]  # one example gets that far
    assert np.isnan(cells.z[0][1])
    assert figure.layout.title.text == "effect: logit diff, mean of 2 examples (grey: no value)"
    assert figure.layout.xaxis.title.text.startswith("token position")
    assert figure.layout.yaxis.title.text == "layer"
    assert figure.layout.yaxis.ticktext == ("5", "6", "9")


def test_pointing_at_a_cell_says_how_many_prompts_have_it_where_that_differs(ds):
    cells = heatmap(ds).data[0]
    assert cells.customdata.tolist() == [[2, 0, 2, 1], [2, 2, 2, 1], [2, 2, 2, 1]]
    assert cells.hovertemplate.endswith("mean of %{customdata} of 2<extra></extra>")
    assert heatmap(ds, example=0).data[0].customdata is None


def test_equal_tokens_keep_their_own_columns(ds):
    figure = heatmap(ds, example=0, metric="kl")
    assert list(figure.data[0].x) == [0, 1, 2, 3]
    assert figure.layout.xaxis.tickvals == (0, 1, 2, 3)
    assert figure.layout.xaxis.ticktext[1] == figure.layout.xaxis.ticktext[3] == "·the"
    np.testing.assert_allclose(figure.data[0].z, ds["effect"].values[1, :, :, 0])


def test_tokens_that_differ_are_marked_and_markup_is_text(ds):
    ticks = heatmap(ds, example=0).layout.xaxis.ticktext
    assert ticks[0] == "&lt;bos&gt;"
    assert ticks[2] == f'<span style="color:{MARK}"><b>&lt;b&gt;</b></span>'
    assert [MARK in text for text in ticks] == [False, False, True, False]
    hover = heatmap(ds, example=0).data[0].text[1][2]
    assert hover == "layer 6<br>token position 2 “&lt;b&gt;” (other prompt: “·cat”)"


def test_an_example_ends_at_its_last_token(ds):
    figure = heatmap(ds, example=1)
    assert np.asarray(figure.data[0].z).shape == (3, 3)
    assert [MARK in text for text in figure.layout.xaxis.ticktext] == [False, True, False]


def test_over_examples_only_a_shared_token_is_a_label(ds):
    ticks = heatmap(ds).layout.xaxis.ticktext
    assert ticks[0] == "&lt;bos&gt;"
    assert ticks[1] == f'<span style="color:{MARK}"><b>1</b></span>'
    assert ticks[3] == "·the"
    assert "number: the examples differ" in heatmap(ds).layout.xaxis.title.text


def test_effects_are_centred_on_zero_and_probabilities_start_there(ds):
    effect = heatmap(ds, example=0).layout.coloraxis
    reach = np.nanmax(np.abs(ds["effect"].values[0, :, :, 0]))
    assert (effect.cmin, effect.cmax) == (-reach, reach)
    assert effect.colorbar.title.text == "logits"
    assert effect.colorscale[0][1] == "rgb(5,48,97)"  # blue for what lowers the metric
    share = heatmap(ds, variable="answer_prob").layout.coloraxis
    assert (share.cmin, share.cmax) == (0.0, 0.25)
    assert share.colorbar.title.text == "probability"
    fixed = heatmap(ds, variable="answer_prob", limits=(0.0, 1.0)).layout.coloraxis
    assert (fixed.cmin, fixed.cmax) == (0.0, 1.0)


def test_only_nan_still_has_a_colour_range():
    empty = build({"recovered": (("layer", "head"), np.full((2, 2), np.nan))})
    axis = heatmap(empty).layout.coloraxis
    assert (axis.cmin, axis.cmax) == (-1.0, 1.0)


def test_sides_can_be_chosen_and_panels_share_one_scale():
    values = np.arange(2 * 3 * 4, dtype=float).reshape(2, 3, 4) / 24
    ds = build(
        {"f1": (("site", "model", "layer"), values)},
        {"site": ["resid_post", "attn_out"], "model": ["base", "tuned", "<i>"]},
    )
    figure = heatmap(ds, "layer", "model", panel="site")
    np.testing.assert_allclose(figure.data[0].z, values[0], rtol=1e-6)
    np.testing.assert_allclose(figure.data[1].z, values[1], rtol=1e-6)
    assert [a.text for a in figure.layout.annotations] == ["resid_post", "attn_out"]
    assert figure.layout.yaxis.ticktext == ("base", "tuned", "&lt;i&gt;")
    assert figure.layout.yaxis.range[0] > figure.layout.yaxis.range[1]  # first model on top
    assert (figure.layout.coloraxis.cmin, figure.layout.coloraxis.cmax) == (0.0, 1.0)
    turned = heatmap(ds["f1"].isel(site=0), "model", "layer")
    np.testing.assert_allclose(turned.data[0].z, values[0].T, rtol=1e-6)


def test_a_dimension_of_one_place_is_named_in_the_title():
    ds = build(
        {"kl": (("layer", "head", "pos"), np.zeros((2, 3, 1)))}, {"pos": [7], "layer": [0, 1]}
    )
    assert heatmap(ds).layout.title.text == "KL divergence, pos 7"


def test_given_tokens_label_positions_and_must_fit(ds):
    plain = ds["answer_prob"].drop_vars(["token", "source_token"], errors="ignore")
    figure = heatmap(plain, tokens=["a", "b\n", "c", "d"], source_tokens=["a", "b\n", "x", "d"])
    assert figure.layout.xaxis.ticktext[1] == "b\\n"
    assert MARK in figure.layout.xaxis.ticktext[2]
    with pytest.raises(SpecError, match="3 token labels were given for 4 places along 'pos'"):
        heatmap(plain, tokens=["a", "b", "c"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"variable": "recovered"}, "no variable 'recovered': it has effect, answer_prob"),
        ({"metric": "loss"}, "no metric 'loss': it has logit_diff, kl"),
        ({"example": 7}, "'example' has no 7: it has 0, 1"),
        ({"x": "head"}, "'effect' has no dimension 'head': it has layer .3., pos .4."),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(ds, arguments, message):
    with pytest.raises(SpecError, match=message):
        heatmap(ds, **arguments)


def test_more_or_fewer_than_two_dimensions_are_refused():
    cube = build({"kl": (("layer", "head", "pos"), np.zeros((2, 3, 4)))})
    with pytest.raises(SpecError, match=r"choose one place along pos, e\.g\. select=\{'pos': 0\}"):
        heatmap(cube, x="head", y="layer")
    chosen = heatmap(cube + cube["pos"], select={"pos": 3}, variable="kl")
    assert (np.asarray(chosen.data[0].z) == 3).all()
    with pytest.raises(SpecError, match="draw a curve instead"):
        heatmap(build({"kl": (("layer",), np.zeros(3))}))


def test_long_prompts_keep_every_column_and_thin_their_labels():
    tokens = [f"word{i}" for i in range(300)]
    source = [*tokens[:151], "other", *tokens[152:]]
    ds = build(
        {"kl": (("layer", "pos", "example"), np.zeros((2, 300, 1)))},
        token_coords([tokens], [source]),
    )
    axis = heatmap(ds).layout.xaxis
    assert len(axis.tickvals) <= 81
    assert 151 in axis.tickvals  # the token that differs is always named
    assert axis.ticktext[axis.tickvals.index(4)] == "word4"
