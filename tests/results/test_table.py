"""The top cells are the largest, by the mean over examples."""

import numpy as np
import pytest

from tlkit.errors import SpecError
from tlkit.results.schema import build
from tlkit.results.table import top


@pytest.fixture
def ds():
    effect = np.zeros((2, 2, 3, 2))
    effect[0, 1, 2] = [-5.0, -3.0]
    effect[0, 0, 1] = [3.0, np.nan]
    effect[0, 0, 0] = np.nan
    effect[1, 1, 0] = [0.5, 0.7]
    return build(
        {"effect": (("metric", "layer", "head", "example"), effect)},
        {
            "metric": ["logit_diff", "prob"],
            "metric_units": ("metric", ["logits", "probability"]),
            "layer": [10, 11],
        },
    )


def test_the_largest_in_size_come_first_with_their_labels(ds):
    assert top(ds, 2) == [
        {"layer": 11, "head": 2, "value": -4.0, "n": 2, "units": "logits", "metric": "logit_diff"},
        {"layer": 10, "head": 1, "value": 3.0, "n": 1, "units": "logits", "metric": "logit_diff"},
    ]


def test_by_value_and_by_metric(ds):
    assert top(ds, 1, by="value")[0]["value"] == 3.0
    best = top(ds, 1, metric="prob")[0]
    assert (best["layer"], best["head"], best["units"]) == (11, 0, "probability")
    assert best["value"] == pytest.approx(0.6)


def test_cells_without_a_value_are_left_out(ds):
    rows = top(ds, 100)
    assert len(rows) == 5
    assert {"layer": 10, "head": 0} not in [{k: r[k] for k in ("layer", "head")} for r in rows]


def test_cells_that_few_examples_have_are_ranked_only_when_asked_for(ds):
    (first,) = top(ds, 1, shared=0.6)
    assert (first["head"], first["n"]) == (2, 2)
    assert all(row["n"] == 2 for row in top(ds, 100, shared=0.6))
    assert [row["n"] for row in top(ds, 2, shared=0.0)] == [2, 1]


def test_unknown_names_are_refused_with_what_exists(ds):
    with pytest.raises(SpecError, match="no variable 'recovered': it has effect"):
        top(ds, variable="recovered")
    with pytest.raises(SpecError, match="no metric 'kl': it has logit_diff, prob"):
        top(ds, metric="kl")
