"""Several models in one study, their differences, and what is refused.

Faults to plant: first minus second; p-values not adjusted, or over sites together; a shallower
model's layers stretched without being asked; blanks read as zeros.
"""

import numpy as np
import pytest
import scipy.stats

from tlkit.errors import SpecError
from tlkit.models.load import HookedTransformer
from tlkit.models.tiny import tiny
from tlkit.plots import plot
from tlkit.prompts.prompts import Prompts
from tlkit.results.files import open as open_store
from tlkit.results.files import save
from tlkit.studies import ablation

ROWS = [
    {"prompt": "The cat sat on the", "answer": "mat and the dog"},
    {"prompt": "Who wrote the book about", "answer": "it"},
    {"prompt": "The dog", "answer": "is here"},
    {"prompt": "Count to", "answer": "five"},
    {"prompt": "One of the", "answer": "men"},
    {"prompt": "She went", "answer": "home"},
]
TEXTS = [row["prompt"] for row in ROWS]


@pytest.fixture(scope="module")
def shallow(tiny_bridge):
    hf = tiny("llama3", layers=2, seed=5)
    return HookedTransformer.from_pretrained(hf, tokenizer=tiny_bridge("llama3").tokenizer)


@pytest.fixture(scope="module")
def found(tiny_bridge, shallow):
    models = {"deep": tiny_bridge("llama3"), "shallow": shallow}
    return ablation.run(models, ROWS, components=["attn_out", "mlp_out", "heads"])


def test_models_stand_side_by_side(found, tiny_bridge, shallow):
    assert found["kl"].dims == ("model", "site", "layer", "example")
    assert found["head_kl"].dims == ("model", "layer", "head", "example")
    assert found["depth"].values.tolist() == [3, 2]
    assert (found["kl"].attrs["units"], found["loss"].attrs["units"]) == ("nats", "nats per token")
    alone = ablation.run(shallow, ROWS, components=["attn_out", "mlp_out", "heads"])
    for name in alone.data_vars:
        both = found[name].sel(model="shallow")
        if "layer" in both.dims:
            assert np.isnan(both.sel(layer=2)).all()
            both = both.sel(layer=[0, 1])
        np.testing.assert_array_equal(both, alone[name].isel(model=0))
    assert not np.isnan(found["kl"].sel(model="deep")).any()
    assert found.attrs["weight_hashes"].count(",") == 1


def test_layers_by_number_and_from_0_to_1(found):
    plain = ablation.by_layer(found)["effect"]
    np.testing.assert_array_equal(plain, found["kl"])
    relative = ablation.by_layer(found, axis="relative")
    assert relative["layer"].values.tolist() == [0, 0.5, 1]
    assert relative.attrs["axis"] == "relative"
    two = found["kl"].sel(model="shallow", layer=[0, 1]).values.astype(float)
    wanted = np.stack([two[:, 0], two.mean(1), two[:, 1]], 1)
    np.testing.assert_allclose(relative["effect"].sel(model="shallow"), wanted)
    np.testing.assert_allclose(relative["effect"].sel(model="deep"), found["kl"].sel(model="deep"))


def test_losses_and_probabilities_are_changes(found):
    for name in ("loss", "answer_prob"):
        change = ablation.by_layer(found, name)["effect"].values
        base = found[f"{name}_base"].values[:, None, None]
        np.testing.assert_allclose(change, found[name].values - base, rtol=1e-5)
        raw = ablation.by_layer(found, name, raw=True)["effect"]
        np.testing.assert_array_equal(raw, found[name])
    heads = ablation.by_layer(found, "head_loss")["effect"].values
    base = found["loss_base"].values[:, None, None]
    np.testing.assert_allclose(heads, found["head_loss"].values - base, rtol=1e-5)


@pytest.mark.parametrize("effect", ["kl", "loss", "head_kl"])
def test_differences_are_paired_and_tested(found, effect):
    tested = ablation.compare(found, "deep", "shallow", effect, permutations=4000)
    values = ablation.by_layer(found, effect)["effect"]
    gap = (values.sel(model="shallow") - values.sel(model="deep")).values
    np.testing.assert_allclose(tested["difference"], gap.mean(-1))
    n = len(ROWS)
    half = scipy.stats.t.ppf(0.975, n - 1) * gap.std(-1, ddof=1) / np.sqrt(n)
    np.testing.assert_allclose(tested["high"] - tested["difference"], half)
    np.testing.assert_allclose(tested["difference"] - tested["low"], half)
    signs = np.array(np.meshgrid(*[[1, -1]] * n)).reshape(n, -1)  # every sign flip there is
    far = np.abs(gap @ signs) >= np.abs(gap.sum(-1))[..., None] - 1e-12
    there = ~np.isnan(gap[..., 0])
    np.testing.assert_allclose(tested["p_value"].values[there], far.mean(-1)[there], atol=0.03)
    p = tested["p_value"].values
    if effect == "head_kl":
        wanted = scipy.stats.false_discovery_control(p[there])
        np.testing.assert_allclose(tested["p_adjusted"].values[there], wanted)
    else:
        for site in range(2):
            wanted = scipy.stats.false_discovery_control(p[site, :2])
            np.testing.assert_allclose(tested["p_adjusted"].values[site, :2], wanted)
    assert np.isnan(tested["p_adjusted"].sel(layer=2)).all()


def test_a_model_does_not_differ_from_itself(tiny_bridge):
    model = tiny_bridge("gptj")
    ds = ablation.run({"one": model, "two": model}, TEXTS, value="mean", components="block")
    for effect in ("kl", "loss"):
        tested = ablation.compare(ds, "one", "two", effect)
        assert (tested["difference"] == 0).all()
        assert (tested["p_value"] == 1).all()
        assert (tested["p_adjusted"] == 1).all()


def test_everything_is_kept_and_drawn(found, tmp_path):
    save(found, tmp_path / "a.zarr")
    again = open_store(tmp_path / "a.zarr")
    for name in found.data_vars:
        np.testing.assert_array_equal(again[name], found[name])
    assert len(plot(found).data) == 8  # two sites, two models, a line and a band each
    assert plot(ablation.by_layer(found, "loss", axis="relative")).data
    assert plot(ablation.compare(found, "deep", "shallow")).data


def test_a_store_is_gone_on_with(tiny_bridge, tmp_path, monkeypatch):
    from tlkit.engine.packed_values import PackedBackend

    models = {"a": tiny_bridge("llama3"), "b": tiny_bridge("qwen3")}
    store = tmp_path / "kept"
    first = ablation.run(models, TEXTS, components="mlp_out", store=store)
    monkeypatch.setattr(PackedBackend, "run", lambda *_: pytest.fail("it was run again"))
    second = ablation.run(models, TEXTS, components="mlp_out", store=store)
    np.testing.assert_array_equal(first["kl"], second["kl"])
    with pytest.raises(SpecError, match="holds another run"):
        ablation.run(models, TEXTS, components="attn_out", store=store)


def test_progress_rises_to_its_end(tiny_bridge):
    seen = []
    ablation.run(
        {"a": tiny_bridge("llama3"), "b": tiny_bridge("gptj")}, TEXTS, components="mlp_out",
        behaviour=bool, max_new_tokens=2, progress=lambda done, total: seen.append((done, total)),
    )  # fmt: skip
    assert seen == sorted(seen)
    assert seen[-1] == (400, 400)


def test_a_plan_counts_what_will_run(tiny_bridge, monkeypatch):
    models = {"a": tiny_bridge("llama3"), "b": tiny_bridge("gptj")}
    choices = {"components": ["attn_out", "heads"], "behaviour": bool, "max_new_tokens": 5}
    cost = ablation.plan(models, TEXTS, **choices)
    cells = 3 + 3 * 4
    assert [one.cells for one in cost.sweeps.values()] == [cells, cells]
    assert (cost.continuations, cost.new_tokens) == (2 * 4 * 6, 2 * 4 * 6 * 5)
    assert cost.seconds > 0
    assert "continuations" in str(cost)
    assert cost.as_dict()["sweeps"]["b"]["examples"] == 6


def other_tokenizer():
    return Prompts(clean=((1, 2), (3, 4)), tokenizer_hash="another")


@pytest.mark.parametrize(
    ("prompts", "more", "message"),
    [
        ([], {}, "There are no prompts"),
        ("The cat", {}, "several texts or rows"),
        ([1], {}, "Row 0 of the prompts is no text"),
        ([{"text": "a"}], {}, "Row 0 of the prompts is no text"),
        ([ROWS[0], TEXTS[1]], {}, "Row 1 of the prompts has no 'answer'"),
        (TEXTS, {"components": "resid_pre"}, "no component 'resid_pre'; there are attn_out"),
        (TEXTS, {"components": []}, "at least one component"),
        (TEXTS, {"components": ["block", "block"]}, "each once"),
        (TEXTS, {"components": 3}, "components are names"),
        (TEXTS, {"value": "noise"}, "no value 'noise'; there are zero"),
        (TEXTS, {"engine": "gradient"}, "no engine 'gradient'"),
        (TEXTS, {"metrics": "logit_diff"}, "no metric 'logit_diff'; there are kl"),
        (TEXTS, {"metrics": "answer_prob"}, "answer_prob needs answers"),
        (TEXTS, {"windows": 4}, "window of 4 layers does not fit .* which has 3"),
        (TEXTS, {"windows": 0}, "windows is 0"),
        (TEXTS, {"windows": 2, "components": "heads"}, "Heads are ablated one by one"),
        (TEXTS, {"value": "skip", "components": "heads"}, "cannot be skipped"),
        (TEXTS, {"behaviour": "I cannot"}, "'I cannot', which cannot be called"),
        (TEXTS, {"behaviour": {"refuses": 3}}, "'refuses' is 3"),
        (TEXTS, {"behaviour": bool, "components": "heads"}, "not under single heads"),
        (TEXTS, {"behaviour": bool, "max_new_tokens": 200}, "lower max_new_tokens"),
        (TEXTS[:1], {"value": "resample"}, "there is one prompt"),
        (TEXTS, {"value": "mean", "reference": []}, "There are no reference"),
        (TEXTS, {"value": "mean", "reference": other_tokenizer()}, "reference does not fit"),
        (other_tokenizer(), {}, "another model's tokenizer"),
        (TEXTS, {"budget": "much"}, "A budget is"),
        (TEXTS, {"store": "missing/kept"}, "does not exist"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_a_sentence(tiny_bridge, monkeypatch, prompts, more, message):
    model = tiny_bridge("llama3")
    for engine in ("packed_values.PackedBackend", "reference_values.ReferenceBackend"):
        for name in ("run", "baseline"):
            monkeypatch.setattr(
                f"tlkit.engine.{engine}.{name}", lambda *_: pytest.fail("the model was run")
            )
    with pytest.raises(SpecError, match=message) as error:
        ablation.run(model, prompts, **more)
    assert "\n" not in str(error.value)


def test_models_that_are_none(tiny_bridge):
    with pytest.raises(SpecError, match="needs a model"):
        ablation.run({}, TEXTS)
    with pytest.raises(SpecError, match="no tokenizer"):
        ablation.run({"a": 3}, TEXTS)


def test_names_that_are_not_there(found, tiny_bridge):
    with pytest.raises(SpecError, match="no effect 'entropy'"):
        ablation.by_layer(found, "entropy")
    with pytest.raises(SpecError, match="no axis 'depth'"):
        ablation.by_layer(found, axis="depth")
    with pytest.raises(SpecError, match="no model 'x'; there are deep, shallow"):
        ablation.compare(found, "deep", "x")
    with pytest.raises(SpecError, match="at least two prompts"):
        ablation.compare(found.isel(example=[0]), "deep", "shallow")
