"""The whole study on a tiny model: what is in its dataset, what is missing and why."""

import json

import numpy as np
import pytest

import tlkit as tk
from tlkit.errors import SpecError
from tlkit.prompts.qa import QA
from tlkit.studies.pathways import curves, plan, run, share_right, table

QUICK = {"max_new_tokens": 5, "min_examples": 8, "folds": 2, "seeds": (0, 1)}


@pytest.fixture(scope="module")
def found(tiny_bridge, asked):
    return run(tiny_bridge("llama"), asked, **QUICK)


def test_names_dimensions_and_units_are_the_schemas(found):
    sizes = {"dataset": 1, "layer": 3, "example": 48}
    for name in ("delta_p", "delta_p_control", "delta_p_held_out", "q_anchored"):
        assert dict(found[name].sizes) == sizes
    assert found["delta_p"].attrs["units"] == "percentage points"
    assert found["q_anchored"].dtype == bool
    assert found["probe_auc"].dims == ("dataset", "layer", "seed")
    assert found["probe_auc_control"].shape == (1, 3, 2)
    assert found["delta_p_intervention"].dims == ("dataset", "kind", "group", "layer", "example")
    assert found["group"].values.tolist() == ["Q-anchored", "A-anchored"]
    assert found.attrs["study"] == "pathways"
    assert found.attrs["engine"] == "packed"


def test_its_numbers_hang_together(found):
    p, cut = found["p_wrong"].values, found["p_wrong_knockout"].values
    there = ~np.isnan(p)
    expected = 100 * np.where(p > 0.5, cut - p, p - cut)
    np.testing.assert_allclose(found["delta_p"].values[there], expected[there], atol=1e-3)
    assert (found["q_anchored"].values == (((p > 0.5) != (cut > 0.5)) & there)).all()
    verdicts = found["verdict"].values[0]
    assert (there.all(axis=(0, 1)) <= (verdicts != "unknown")).all()
    notes = json.loads(found.attrs["notes"])["tiny questions"]
    assert notes["counts"]["right"] == (verdicts == "right").sum() >= 8
    assert notes["counts"]["used"] == there[0, 0].sum()


def test_curves_divide_the_examples_and_leave_out_small_groups(found):
    whole = curves(found, "group", min_examples=1)
    assert whole["group"].values.tolist() == ["Q-anchored", "A-anchored", "random tokens"]
    both = whole["delta_p"].sel(group=["Q-anchored", "A-anchored"]).notnull().sum("group")
    assert (both.values[0] == found["delta_p"].notnull().values[0]).all()
    sizes = whole["group_size"].values[0]
    small = curves(found, "group", min_examples=int(sizes[1].min()) + 1)
    assert small["delta_p"].sel(group="Q-anchored").isnull().all()
    assert (small["group_size"].values == whole["group_size"].values).all()
    assert "by whether that verdict turned" in whole.attrs["caption"]
    assert curves(found, "knockout")["delta_p"].sizes["group"] == 3
    assert curves(found, "patch", min_examples=1)["delta_p"].sizes["group"] == 2


def test_a_table_has_means_intervals_and_counts(found):
    rows = table(found, min_examples=2)
    assert set(rows["reading"]) == {"group", "held_out", "knockout", "patch"}
    one = rows[(rows.reading == "group") & (rows.group == "random tokens") & (rows.layer == 2)]
    values = found["delta_p_control"].values[0, 2]
    values = values[~np.isnan(values)]
    assert one.delta_p.item() == pytest.approx(values.mean(), rel=1e-5)
    half = 1.96 * values.std(ddof=1) / np.sqrt(len(values))
    assert one.high.item() - one.delta_p.item() == pytest.approx(half, rel=0.1)
    assert one.n.item() == len(values)
    shares = share_right(found)
    assert shares[["right", "wrong", "unknown"]].to_numpy().sum() == 48


def test_the_reference_engine_gives_the_same(tiny_bridge, asked, found):
    slow = run(tiny_bridge("llama"), asked, engine="reference", layers=[0, 2], **QUICK)
    assert slow.attrs["engine"] == "reference"
    for name in ("delta_p", "delta_p_control", "p_wrong_knockout"):
        np.testing.assert_allclose(slow[name], found[name], atol=0.05)
    some = found["delta_p_intervention"].sel(layer=[0, 2])
    np.testing.assert_allclose(
        slow["delta_p_intervention"].sel(layer=[0, 2]), some, rtol=1e-2, atol=1e-5
    )
    assert slow["delta_p_intervention"].sel(layer=1).isnull().all()


def test_a_seed_gives_the_same_again_and_another_one_other_controls(tiny_bridge, asked, found):
    more = {**QUICK, "parts": ["intervention"], "layers": [1]}
    again, other = (run(tiny_bridge("llama"), asked, seed=seed, **more) for seed in (0, 1))
    name = "delta_p_intervention_control"
    np.testing.assert_allclose(again[name][..., 1, :], found[name][..., 1, :], atol=1e-5)
    assert not np.allclose(other[name], again[name], equal_nan=True)
    assert "delta_p" not in again


def test_several_sets_stand_side_by_side_and_are_saved(tiny_bridge, asked, tmp_path):
    sets = {"all": asked, "few": asked[:10]}
    store = tmp_path / "x.zarr"
    stages = []

    def told(name):
        stages.append(name)
        return lambda done, total: None

    first = run(tiny_bridge("llama"), sets, store=store, stages=told, **QUICK)
    assert first["delta_p"].sel(dataset="few").isnull().all()
    assert (first["question"].sel(dataset="few").values[10:] == "").all()
    reasons = json.loads(first.attrs["notes"])["few"]["reasons"]
    assert any("needs 8 right and 8 wrong answers; there are" in reason for reason in reasons)
    assert any(name.startswith("few: ") for name in stages)
    stages.clear()
    again = run(tiny_bridge("llama"), sets, store=store, stages=told, **QUICK)
    assert stages == []  # nothing was run again
    for name in first.data_vars:
        np.testing.assert_array_equal(first[name], again[name])
    with pytest.raises(SpecError, match="holds another study"):
        run(tiny_bridge("llama"), sets, store=store, **{**QUICK, "mode": "-inf"})


def test_an_interrupted_study_goes_on_with_the_sets_that_are_missing(tiny_bridge, asked, tmp_path):
    sets, store = {"one": asked[:12], "two": asked[12:24]}, tmp_path / "x.zarr"
    quick = {**QUICK, "parts": ["intervention"], "layers": [1]}

    def stop(name):
        if name.startswith("two"):
            raise KeyboardInterrupt
        return lambda done, total: None

    with pytest.raises(KeyboardInterrupt):
        run(tiny_bridge("llama"), sets, store=store, stages=stop, **quick)
    assert tk.open(store).attrs["complete"] is False
    stages = []
    whole = run(
        tiny_bridge("llama"), sets, store=store,
        stages=lambda name: stages.append(name) or (lambda done, total: None), **quick,
    )  # fmt: skip
    assert all(name.startswith("two") for name in stages)
    fresh = run(tiny_bridge("llama"), sets, **quick)
    for name in fresh.data_vars:
        np.testing.assert_allclose(whole[name], fresh[name], atol=1e-5)
    assert tk.open(store).attrs["complete"] is True


@pytest.mark.parametrize("right", [True, False])
def test_only_right_or_only_wrong_answers_leave_the_group_reading_out(tiny_bridge, asked, right):
    model = tiny_bridge("llama")
    rows = [
        {"question": q.question, "answer": q.answer, "subject": q.subject}
        for q in asked
        if (q.answer != "zzz") == right
    ]
    found = run(model, QA.from_rows(rows), **QUICK, layers=[0])
    assert "delta_p" not in found
    assert found["delta_p_intervention"].notnull().any()
    note = json.loads(found.attrs["notes"])["qa"]
    assert any("The group reading needs 8 right and 8 wrong" in said for said in note["reasons"])
    with pytest.raises(SpecError, match=r"'group' was not measured; qa: .*The group reading needs"):
        curves(found, "group")


def test_a_plan_counts_without_running(tiny_bridge, asked):
    model = tiny_bridge("llama")
    found = plan(model, {"a": asked, "b": asked[:5]}, **QUICK)
    assert found.questions == {"a": 48, "b": 5}
    assert found.new_tokens == 53 * 5
    assert found.lanes == 53 * (2 + 5 * 3)
    assert found.probes == 4 * 2 * 2 * 3 * 2
    assert found.plain_token_layers > 2 * found.token_layers
    assert "times fewer" in str(found)
    assert plan(model, asked, parts=["intervention"], **QUICK).probes == 0


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"readings": ["groups"]}, "Parts are group, intervention"),
        ({"parts": []}, "none at all"),
        ({"mode": "half"}, "mode='half' is not known"),
        ({"layers": [3]}, r"layers \[3\]: this model has layers 0 to 2"),
        ({"folds": 1}, "at least 2 folds"),
        ({"seeds": (1, 1)}, "seeds that differ"),
        ({"min_examples": 1}, "min_examples is 1"),
        ({"c": 0}, "c is 0"),
        ({"colour": 1}, "pathways has no choice 'colour'; it has parts"),
        ({"template": "no place"}, "must hold {question} once"),
        ({"stop": "never"}, "no stop 'never'"),
    ],
)
def test_bad_choices_are_refused_before_any_model_work(tiny_bridge, asked, choices, message):
    with pytest.raises(SpecError, match=message):
        run(tiny_bridge("llama"), asked, **{**QUICK, **choices})


def test_what_is_no_set_of_questions_is_refused(tiny_bridge, asked):
    model = tiny_bridge("llama")
    with pytest.raises(SpecError, match="list is no set of questions"):
        run(model, {"x": []})
    with pytest.raises(SpecError, match="have one name"):
        run(model, [asked, asked])
    with pytest.raises(SpecError, match="pathways needs questions"):
        run(model, {})
    with pytest.raises(SpecError, match="no engine 'quick'"):
        run(model, asked, engine="quick")


def test_our_own_questions_come_relation_by_relation():
    qa = tk.pathways.own_questions(30, seed=1)
    relations = [question.relation for question in qa]
    assert len(set(relations[:15])) == 15
    assert [q.question for q in qa] != [q.question for q in tk.pathways.own_questions(30)]
