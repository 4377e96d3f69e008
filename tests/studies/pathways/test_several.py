"""Several models and sets in one study: side by side, gone on with, or refused."""

import json

import numpy as np
import pytest

import tlkit as tk
from tlkit.errors import SpecError
from tlkit.models.load import HookedTransformer
from tlkit.models.tiny import tiny, tiny_tokenizer
from tlkit.studies.answers import Answers, answer
from tlkit.studies.pathways import aucs, counts, curves, reasons, run, share_right, table

QUICK = {"max_new_tokens": 5, "min_examples": 4, "folds": 2, "seeds": (0, 1), "answers": "given"}


@pytest.fixture(scope="module")
def questions():
    return {"all": tk.pathways.own_questions(60), "few": tk.pathways.own_questions(30, seed=2)}


@pytest.fixture(scope="module")
def models(tiny_bridge):
    small = tiny("llama", layers=2)
    return {
        "three": tiny_bridge("llama"),
        "two": HookedTransformer.from_pretrained(small, tokenizer=tiny_tokenizer(), device="cpu"),
    }


@pytest.fixture(scope="module")
def found(models, questions):
    return run(models, questions, **QUICK)


def test_each_model_has_what_it_has_alone(models, questions, found):
    assert found["model"].values.tolist() == ["three", "two"]
    assert found["delta_p"].dims == ("model", "dataset", "layer", "example")
    assert found["question"].dims == ("model", "dataset", "example")
    for name, model in models.items():
        alone, own = run(model, questions, **QUICK), found.sel(model=name)
        depth = alone.sizes["layer"]
        for variable in alone.data_vars:
            both = own[variable]
            both = both.isel(layer=slice(depth)) if "layer" in both.dims else both
            np.testing.assert_allclose(both.values, alone[variable].values, atol=1e-4)
    assert found["delta_p"].sel(model="two", layer=2).isnull().all()
    assert not found["q_anchored"].sel(model="two", layer=2).any()
    assert found["delta_p"].sel(model="three", layer=2).notnull().any()
    about = json.loads(found.attrs["models"])
    assert {name: one["n_layers"] for name, one in about.items()} == {"three": 3, "two": 2}
    assert about["three"]["weight_hash"] != about["two"]["weight_hash"]


def test_everything_that_reads_a_study_reads_several_models(found):
    for reading in ("group", "held_out", "knockout", "patch"):
        drawn = curves(found, reading, min_examples=2)
        assert drawn["delta_p"].dims == ("model", "dataset", "group", "layer", "example")
        alone = found.sel(model="two").drop_vars("model")
        alone.attrs = {key: value for key, value in found.attrs.items() if key != "models"}
        alone.attrs["notes"] = json.dumps(json.loads(found.attrs["notes"])["two"])
        expected = curves(alone, reading, min_examples=2)
        some = drawn.sel(model="two", layer=expected["layer"].values)
        np.testing.assert_array_equal(some["delta_p"], expected["delta_p"])
    rows = table(found, min_examples=2)
    assert list(rows.columns[:5]) == ["reading", "model", "dataset", "group", "layer"]
    assert set(zip(counts(found)["model"], counts(found)["dataset"], strict=True)) == {
        (model, name) for model in ("three", "two") for name in ("all", "few")
    }
    assert share_right(found).groupby(["model", "dataset"]).size().shape == (4,)
    assert aucs(found)["probe_auc"].dims[:3] == ("model", "dataset", "control")
    assert all(said.startswith(("three, ", "two, ")) for said in reasons(found))


def test_the_figure_has_a_panel_a_model_and_says_n_of_every_curve(found):
    figure = tk.plot(found)
    titles = [note.text for note in figure.layout.annotations]
    assert titles == ["three", "two"]
    lines = [trace for trace in figure.data if trace.name]
    names = [trace.name.partition(" (n = ")[0] for trace in lines if trace.showlegend]
    assert names == [
        f"{name}, {group}" for name in ("all", "few") for group in ("Q-anchored", "A-anchored")
    ]
    assert all(" (n = " in trace.name for trace in lines)
    dashes = {trace.name.partition(" (n")[0]: trace.line.dash for trace in lines}
    assert {dash for name, dash in dashes.items() if "Q-" in name} == {"solid"}
    assert {dash for name, dash in dashes.items() if "A-" in name} == {"dash"}
    bands = [trace for trace in figure.data if trace.fill == "toself"]
    assert len(bands) == len(lines) == 8


def test_what_was_interrupted_goes_on_with_the_set_that_is_missing(models, questions, tmp_path,
                                                                  found):  # fmt: skip
    store = tmp_path / "x.zarr"

    def stop(name):
        if name.startswith("two, few"):
            raise KeyboardInterrupt
        return lambda done, total: None

    with pytest.raises(KeyboardInterrupt):
        run(models, questions, store=store, stages=stop, **QUICK)
    half = tk.open(store)
    assert half.attrs["complete"] is False
    assert half["delta_p"].sel(model="two", dataset="few").isnull().all()
    seen = []

    def unwanted():
        raise AssertionError("a finished model is loaded again")

    again = run(
        {"three": unwanted, "two": models["two"]}, questions, store=store,
        stages=lambda name: seen.append(name) or (lambda done, total: None), **QUICK,
    )  # fmt: skip
    assert seen
    assert all(name.startswith("two, few") for name in seen)
    for name in found.data_vars:
        np.testing.assert_allclose(again[name], found[name], atol=1e-4)
    assert tk.open(store).attrs["complete"] is True
    with pytest.raises(SpecError, match="a study of several models"):
        run(models["two"], questions, store=store, **QUICK)
    with pytest.raises(SpecError, match="holds another study"):
        run(models, questions, store=store, **{**QUICK, "mode": "-inf"})


def test_parts_may_be_added_to_a_store(models, questions, tmp_path):
    store, seen = tmp_path / "x.zarr", []
    few = {**QUICK, "sites": ("resid_post",)}
    run(models["two"], questions["few"], store=store, parts=["group"], **few)

    def told(name):
        seen.append(name)
        return lambda done, total: None

    more = run(models["two"], questions["few"], store=store, parts=["probes"], stages=told, **few)
    assert [name.partition(": ")[2] for name in seen] == ["places"]
    assert {"delta_p", "place_auc"} <= set(more.data_vars)
    with pytest.raises(SpecError, match="holds another study"):
        run(models["two"], questions["few"], store=store, **{**few, "seeds": (5, 6)})


def test_a_store_made_from_other_answers_is_refused(tiny_bridge, asked, tmp_path, monkeypatch):
    from tlkit.studies.pathways import one_set

    model, store = tiny_bridge("llama"), tmp_path / "x.zarr"
    quick = {"max_new_tokens": 5, "layers": [1]}
    run(model, asked[:12], store=store, parts=["intervention"], **quick)
    said = answer(model, asked[:12], max_new_tokens=5, cache=False)
    others = Answers(said.name, (*said.items[1:], said.items[0]), said.tokenizer_hash)
    monkeypatch.setattr(one_set, "answer", lambda *args, **kwargs: others)
    with pytest.raises(SpecError, match="made from other answers to 'tiny questions'"):
        run(model, asked[:12], store=store, parts=["intervention", "probes"], **quick)


def test_answers_may_be_brought_and_need_the_models_own_tokenizer(tiny_bridge, asked):
    model = tiny_bridge("llama")
    said = answer(model, asked[:12], max_new_tokens=5, cache=False)
    quick = {"parts": ["intervention"], "layers": [1], "max_new_tokens": 5}
    brought, own = run(model, said, **quick), run(model, asked[:12], **quick)
    np.testing.assert_allclose(
        brought["delta_p_intervention"], own["delta_p_intervention"], atol=1e-5
    )
    foreign = Answers(said.name, said.items, "another")
    with pytest.raises(SpecError, match="a tokenizer that is not this model's"):
        run({"one": model, "other": model}, foreign, **quick)


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ([], "needs a model"),
        (["tiny:llama", "tiny:llama"], "named twice"),
        ([object()], "need names"),
        ({"": "tiny:llama"}, "with a name"),
    ],
)
def test_models_that_cannot_be_told_apart_are_refused(asked, models, message):
    with pytest.raises(SpecError, match=message):
        run(models, asked)


def test_a_set_of_one_question_is_refused(tiny_bridge, asked):
    with pytest.raises(SpecError, match="'tiny questions' holds one question"):
        run(tiny_bridge("llama"), asked[:1])


def test_every_part_at_once(models, questions, tmp_path):
    ds = run(
        models, questions["few"], parts=tk.pathways.PARTS, store=tmp_path / "x.zarr",
        factors=(2.0,), scopes=["cumulative", "single"], sites=["resid_post"],
        **{**QUICK, "seeds": (0,)},
    )  # fmt: skip
    for name in ("delta_p", "delta_p_intervention", "p_wrong_cut", "place_auc", "flip_rate",
                 "answer_only_delta_p", "awareness_auc", "right", "detector_auc",
                 "saliency"):  # fmt: skip
        assert name in ds, name
        assert ds[name].attrs["units"]
    assert ds["detector_auc"].dims == ("model", "dataset", "detector")
    assert ds["detector_auc"].notnull().all()
    assert ds["answer_only_delta_p"].attrs["units"] == "percentage points"
    assert (ds["saliency"].fillna(0) >= 0).all()
    cuts = tk.pathways.by_cut(ds, min_examples=1)
    same = curves(ds, "group", min_examples=1).sel(group="Q-anchored")["delta_p"]
    np.testing.assert_allclose(
        cuts["delta_p"].sel(group="Q-anchored", condition="cumulative zero"), same, atol=0.01
    )
    wrong = tk.pathways.by_cut(ds, definition="wrong", min_examples=1)["delta_p"]
    whole = wrong.sel(condition="cumulative zero").sel(group=["Q-anchored", "A-anchored"])
    expected = 100 * (ds["p_wrong_knockout"] - ds["p_wrong"])
    np.testing.assert_allclose(whole.sum("group", min_count=1), expected, atol=0.01)
    group = curves(ds, "group", definition="wrong", min_examples=1)["delta_p"]
    np.testing.assert_allclose(
        group.sel(group=["Q-anchored", "A-anchored"]).sum("group", min_count=1), expected,
        atol=0.01,
    )  # fmt: skip
    known = tk.pathways.boundary(ds, min_examples=1)
    assert known["accuracy"].dims == ("model", "dataset", "group", "layer")
    both = (known["accuracy"] * known["group_size"]).sum("group")
    assert both.sel(model="three").values == pytest.approx(float(ds["right"][0].sum()))
    assert len(tk.pathways.places(ds)) == 2 * 3
    assert len(tk.pathways.detectors(ds)) == 2 * ds.sizes["detector"]
    assert len(tk.pathways.flips(ds)) == 2 * 3 * 2
    density = tk.pathways.saliency_density(ds)
    width = float(density["saliency"][1] - density["saliency"][0])
    assert (density["density"].sum("saliency") * width).values.max() <= 1.05
    for drawn in (cuts.sel(model="two"), known, density, tk.pathways.aucs(ds)):
        assert tk.plot(drawn).data
