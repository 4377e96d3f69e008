"""The schema holds: names, sizes, units, labels, and plain attributes."""

import numpy as np
import pytest

from tlkit.errors import SpecError
from tlkit.results.schema import build, token_coords
from tlkit.results.units import units_of


def small(**changes):
    arguments = {
        "variables": {
            "effect": (("metric", "layer", "example"), np.arange(12.0).reshape(2, 2, 3)),
            "recovered": (("metric", "layer", "example"), np.zeros((2, 2, 3))),
        },
        "coords": {
            "metric": ["logit_diff", "answer_prob"],
            "metric_units": ("metric", ["logits", "probability"]),
            "layer": [4, 7],
        },
        "attrs": {"study": "patching", "seed": np.int64(3)},
    }
    return build(**{**arguments, **changes})


def test_values_labels_and_units_are_where_they_were_put():
    ds = small()
    assert ds["effect"].sel(metric="answer_prob", layer=7, example=2).item() == 11.0
    assert ds["layer"].values.tolist() == [4, 7]
    assert ds["example"].values.tolist() == [0, 1, 2]
    assert units_of(ds["effect"].sel(metric="answer_prob")) == "probability"
    assert units_of(ds["effect"]) == "logits / probability"
    assert units_of(ds["recovered"]) == "fraction"
    assert ds.attrs == {"schema_version": 1, "study": "patching", "seed": 3}
    assert type(ds.attrs["seed"]) is int


def test_a_swept_field_becomes_a_dimension_only_when_it_is_named():
    spec = {"recovered": (("limit",), [0.5, 0.25])}
    ds = build(spec, {"limit": [1.0, 2.0]}, axes=["limit"])
    assert ds["recovered"].sel(limit=2.0).item() == 0.25
    with pytest.raises(SpecError, match="dimension 'limit', which results do not have"):
        build(spec, {"limit": [1.0, 2.0]})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"variables": {"wobble": (("layer",), [1, 2])}}, "'wobble' has no known unit"),
        ({"variables": {"kl": (("layer",), [[1, 2]])}}, "2 axes of sizes .1, 2. but names 1"),
        ({"coords": {"layer": [0, 0], "metric": ["a", "b"]}}, "labels along 'layer' repeat"),
        ({"coords": {"layer": [0, 1, 2]}}, "'layer' have 3 along 'layer' where .* have 2"),
        ({"coords": {"metric": ["a", "b"]}}, "coordinate 'metric_units'"),
        ({"attrs": {"spec": {"a": 1}}}, "Attribute 'spec' is a dict"),
        ({"attrs": {"revision": None}}, "Attribute 'revision' is a NoneType"),
        ({"variables": {"kl": (("layer",), [object(), None])}}, "object values"),
    ],
)
def test_what_does_not_fit_is_refused(changes, message):
    with pytest.raises(SpecError, match=message):
        small(**changes)


def test_variables_that_disagree_on_a_length_are_refused():
    with pytest.raises(SpecError, match="'kl' has 3 along 'layer' where another variable has 2"):
        build({"loss": (("layer",), [1.0, 2.0]), "kl": (("layer",), [1.0, 2.0, 3.0])})


def test_an_effect_without_a_metric_dimension_is_refused():
    with pytest.raises(SpecError, match="give it the dimension 'metric'"):
        build({"effect": (("layer",), [1.0, 2.0])})


def test_a_variable_may_bring_its_own_unit():
    ds = build({"variance": (("layer",), [1.0, 2.0], "squared weight")})
    assert units_of(ds["variance"]) == "squared weight"


def test_token_labels_pad_short_examples_and_follow_the_positions():
    coords = token_coords([["a", "b", "c"], ["d"]], [["a", "x", ""], ["d"]], positions=[2, 0])
    assert coords["token"][0] == ("example", "pos")
    assert coords["token"][1].tolist() == [["c", "a"], ["", "d"]]
    assert coords["source_token"][1].tolist() == [["", "a"], ["", "d"]]
    assert token_coords([["a", "b"], ["c"]])["token"][1].tolist() == [["a", "b"], ["c", ""]]
