"""Every dataset of the schema gets the picture that its study is known by."""

import numpy as np
import pytest

from tlkit.errors import SpecError
from tlkit.plots.views import plot
from tlkit.results.schema import build


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def effects(dims, shape, study="patching"):
    rng = np.random.default_rng(0)
    return build(
        {"effect": (("metric", *dims, "example"), rng.normal(size=(1, *shape, 5)))},
        {"metric": ["logit_diff"], "metric_units": ("metric", ["logits"])},
        {"study": study},
    )


def test_two_swept_axes_are_a_heat_map_with_layers_upwards():
    ds = effects(("head", "layer"), (2, 3))
    figure = plot(ds)
    assert figure.data[0].type == "heatmap"
    np.testing.assert_allclose(figure.data[0].z, ds["effect"].values[0].mean(-1).T, rtol=1e-6)


def test_one_swept_axis_is_a_curve():
    ds = effects(("layer",), (4,))
    line = plot(ds).data[-1]
    assert line.type == "scatter"
    np.testing.assert_allclose(line.y, ds["effect"].values[0].mean(-1))


def test_a_studys_map_of_one_column_is_a_curve(rng):
    scores = rng.normal(size=(3, 2))

    def drawn(positions):
        values = {"candidate_score": (("layer", "pos"), scores[:, :positions], "log-odds")}
        labels = {"layer": [0, 1, 2], "pos": list(range(-positions, 0))}
        return plot(build(values, labels, {"study": "abliteration"}))

    assert drawn(2).data[0].type == "heatmap"
    curve = drawn(1).data[0]
    assert curve.type == "scatter"
    np.testing.assert_allclose(curve.y, scores[:, 0])


def test_more_axes_ask_for_a_selection_and_take_it():
    ds = effects(("layer", "head", "pos"), (2, 3, 4))
    with pytest.raises(SpecError, match=r"layer .2., head .3., pos .4. and a picture has two"):
        plot(ds)
    figure = plot(ds, select={"pos": 3})
    np.testing.assert_allclose(
        figure.data[0].z, ds["effect"].values[0, :, :, 3].mean(-1), rtol=1e-6
    )
    assert figure.layout.title.text == "effect: logit diff, pos 3, mean of 5 examples"
    with pytest.raises(SpecError, match="'pos' has no 9: it has 0, 1, 2, 3"):
        plot(ds, select={"pos": 9})


def test_a_single_number_is_no_picture():
    with pytest.raises(SpecError, match="one number here, not a picture"):
        plot(effects(("layer",), (1,)))


def test_an_example_of_its_own():
    ds = effects(("layer", "head"), (2, 3))
    np.testing.assert_allclose(
        plot(ds, example=4).data[0].z, ds["effect"].values[0, ..., 4], rtol=1e-6
    )


def test_pathways_draw_a_line_a_data_set_and_group(rng):
    values = rng.normal(size=(4, 2, 6, 9))
    ds = build(
        {"delta_p": (("dataset", "group", "layer", "example"), values)},
        {"dataset": ["a", "b", "c", "d"], "group": ["Q-anchored", "A-anchored"]},
        {"study": "pathways"},
    )
    lines = [trace for trace in plot(ds).data if trace.fill is None]
    assert {line.line.dash for line in lines} == {"solid", "dash"}
    np.testing.assert_allclose(lines[3].y, values[1, 1].mean(-1))


def test_a_pathways_study_is_drawn_by_group_with_its_control(rng):
    values = rng.normal(size=(1, 6, 90)).astype("f4")
    turned = rng.random((1, 6, 90)) < 0.5
    dims = ("dataset", "layer", "example")
    ds = build(
        {
            "delta_p": (dims, values),
            "delta_p_control": (dims, values / 10),
            "q_anchored": (dims, turned),
        },
        {"dataset": ["popqa"]},
        {"study": "pathways", "min_examples": 2},
    )
    lines = [trace for trace in plot(ds).data if trace.fill is None]
    assert [line.line.dash for line in lines] == ["solid", "dash", "dot"]
    assert lines[2].name == "random tokens (n = 90)"
    np.testing.assert_allclose(lines[0].y[2], values[0, 2][turned[0, 2]].mean(), rtol=1e-4)


def test_layer_probes_are_models_by_layers_for_each_site(rng):
    values = rng.uniform(0.5, 1.0, size=(3, 2, 4, 5))
    ds = build(
        {"f1": (("model", "site", "layer", "fold"), values)},
        {"model": ["x", "y", "z"], "site": ["resid_post", "attn_out"]},
        {"study": "layer_probes"},
    )
    figure = plot(ds)
    np.testing.assert_allclose(figure.data[1].z, values[:, 1].mean(-1), rtol=1e-6)
    assert (figure.layout.coloraxis.cmin, figure.layout.coloraxis.cmax) == (0.5, 1.0)


def test_conditions_need_a_layer_and_a_head(rng):
    values = rng.uniform(size=(2, 3, 2, 5, 4))
    ds = build(
        {"attention_weight": (("condition", "layer", "head", "pos", "example"), values)},
        {"condition": ["None", "Miess"]},
        {"study": "conditions"},
    )
    with pytest.raises(SpecError, match="choose one place along layer and head"):
        plot(ds)
    lines = [t for t in plot(ds, select={"layer": 2, "head": 0}).data if t.fill is None]
    np.testing.assert_allclose(lines[1].y, values[1, 2, 0].mean(-1))


def test_another_variable_of_a_study_is_drawn_by_its_dimensions(rng):
    ds = build(
        {
            "kl": (("layer", "example"), rng.uniform(size=(3, 4))),
            "answer_prob": (("layer", "head", "example"), rng.uniform(size=(3, 2, 4))),
        },
        attrs={"study": "ablation"},
    )
    assert plot(ds).data[-1].type == "scatter"
    assert plot(ds, variable="answer_prob").data[0].type == "heatmap"
