"""Heads under conditions, against whole patterns, closed forms and hand-made changes.

Faults to plant: read inserted columns instead of original ones; shift the map by one; take λ from
the original keys of another row; forget the baseline in the tests; count the first token.
"""

import copy

import numpy as np
import pytest
import torch

from tlkit.errors import SpecError
from tlkit.models.bridge import unbridged
from tlkit.models.load import HookedTransformer
from tlkit.models.tiny import tiny, tiny_tokenizer
from tlkit.plots import plot
from tlkit.prompts.prompts import Prompts
from tlkit.results.schema import build
from tlkit.spec.attention import Knockout
from tlkit.spec.insertions import Insert
from tlkit.studies import conditions

TEXTS = ["The cat sat on the mat.", "Who wrote the book about the war?", "Count to five, please."]
SLASHES = "/ / / / "


@pytest.fixture(scope="module")
def model(tiny_bridge):
    return tiny_bridge("llama3")


@pytest.fixture(scope="module")
def prompts(model):
    return Prompts.from_texts(model, TEXTS)


@pytest.fixture(scope="module")
def found(model, prompts):
    return conditions.run(
        model, prompts, {"None": None, "Miess": Insert(SLASHES, at="end")}, permutations=200
    )


def pattern(model, ids):
    with torch.no_grad(), unbridged(model) as hf:
        out = hf(torch.tensor([list(ids)]), output_attentions=True, use_cache=False)
    # transformers may have put its recording hooks on a shared model twice, bridged and unbridged.
    return torch.cat(list(out.attentions)[:: len(out.attentions) // model.cfg.n_layers]).numpy()


def column_means(pattern, keys, queries):
    """``[layer, head, key]`` by a loop."""
    return np.stack([
        np.nan_to_num(pattern[:, :, [q for q in queries if q > k], k]).mean(-1)
        if any(q > k for q in queries) else np.full(pattern.shape[:2], np.nan)
        for k in keys
    ], axis=-1)  # fmt: skip


@pytest.mark.parametrize("queries", ["all", "original"])
@pytest.mark.parametrize("at", ["start", 4, "end"])
def test_weights_are_means_of_columns_of_original_tokens(model, prompts, queries, at):
    from tlkit.prompts.insertion import inserted

    insert = Insert(SLASHES, at=at)
    if at == 4 and any(text[3] == " " for text in TEXTS[1:]):
        pytest.skip("the offset lies inside a token of another text")
    ds = conditions.run(model, prompts, {"Miess": insert}, queries=queries, permutations=20)
    put = inserted(model, prompts, insert)
    for i, ids in enumerate(put.prompts.clean):
        weights = pattern(model, ids)
        chosen = range(len(ids)) if queries == "all" else put.maps[i]
        expected = column_means(weights, put.maps[i], chosen)
        mine = ds["attention_weight"].sel(condition="Miess", example=i).values
        np.testing.assert_allclose(mine[..., : expected.shape[-1]], expected, atol=2e-6)
        plain = pattern(model, prompts.clean[i])
        n = len(prompts.clean[i])
        mine = ds["attention_weight"].sel(condition="None", example=i).values[..., :n]
        np.testing.assert_allclose(mine, column_means(plain, range(n), range(n)), atol=2e-6)
    assert ds.attrs["baseline"] == "None"


def test_the_plain_prompts_are_added_and_the_same_again_differs_in_nothing(model, prompts):
    ds = conditions.run(model, prompts, {"again": prompts}, permutations=100)
    assert ds["condition"].values.tolist() == ["None", "again"]
    assert (ds["effect_size"].sel(condition="again") == 0).all()
    assert (ds["p_value"].sel(condition="again") == 1).all()
    assert ds["p_value"].sel(condition="None").isnull().all()


def test_the_order_of_prompts_changes_nothing(model, prompts, found):
    other = conditions.run(
        model, prompts[[2, 0, 1]], {"None": None, "Miess": Insert(SLASHES, at="end")},
        permutations=200,
    )  # fmt: skip
    for name in ("attention_weight", "entropy_rest", "lambda_q", "affine_residual"):
        np.testing.assert_allclose(
            other[name].values[..., [1, 2, 0]], found[name].values, atol=2e-6, err_msg=name
        )
    np.testing.assert_allclose(other["effect_size"], found["effect_size"], atol=1e-3)


@pytest.fixture(scope="module")
def uniform():
    """A model whose queries are zero: every head attends evenly."""
    hf = copy.deepcopy(tiny("llama3"))
    for layer in hf.model.layers:
        layer.self_attn.q_proj.weight.data.zero_()
    return HookedTransformer.from_pretrained(hf, tokenizer=tiny_tokenizer())


def test_even_attention_has_closed_forms(uniform):
    prompts = Prompts.from_texts(uniform, TEXTS)
    ds = conditions.run(uniform, prompts, {"Miess": Insert(SLASHES, at="start")}, permutations=20)
    for i, ids in enumerate(prompts.clean):
        n = len(ids)
        plain = [np.mean([1 / (q + 1) for q in range(k + 1, n)]) for k in range(n - 1)]
        mine = ds["attention_weight"].sel(condition="None", example=i).values[..., : n - 1]
        np.testing.assert_allclose(mine, np.broadcast_to(plain, mine.shape), atol=1e-6)
        assert ds["entropy"].sel(condition="None", example=i).values == pytest.approx(1.0)
        assert ds["distance"].sel(condition="None", example=i).values == pytest.approx(0.5)
    more = conditions.run(uniform, prompts, {"Miess": Insert(SLASHES, at="start")}, permutations=20)
    from tlkit.prompts.insertion import inserted

    put = inserted(uniform, prompts, Insert(SLASHES, at="start"))
    for i, span in enumerate(put.inserted):
        m = span.stop - span.start
        behind = [new for new in put.maps[i] if new >= span.stop]
        share = np.mean([1 - m / (new + 1) for new in behind])
        found = more["lambda_q"].sel(condition="Miess", example=i).values
        np.testing.assert_allclose(found, share, atol=1e-6)
    # Nothing of layer 0's values or weights depends on where a token stands.
    assert float(more["affine_residual"].sel(condition="Miess", layer=0).max()) < 1e-5


def test_the_claim_is_exact_in_the_first_layer_but_for_rotary_embeddings(model, prompts):
    ds = conditions.run(model, prompts, {"Miess": Insert(SLASHES, at="start")}, permutations=20)
    own = ds.sel(condition="Miess", layer=0)
    assert float(own["affine_residual_in_place"].max()) < 1e-5
    later = ds.sel(condition="Miess", layer=2)
    assert float(later["affine_residual_in_place"].min()) > 1e-3


def test_an_intervention_is_a_condition(model, prompts):
    ds = conditions.run(
        model, prompts, {"cut": Knockout(keys=(1,), layers=(1,))}, permutations=20
    )  # fmt: skip
    cut, plain = (ds["attention_weight"].sel(condition=c) for c in ("cut", "None"))
    # Position 2's own query is behind it, so all of its column's queries are cut.
    assert (cut.sel(layer=1, pos=1) == 0).all()
    assert (plain.sel(layer=1, pos=1) > 0).all()
    np.testing.assert_allclose(cut.sel(layer=0), plain.sel(layer=0), atol=2e-6)


def test_replaced_words_keep_what_surrounds_them(model, prompts):
    texts = ["the cat sat on the mat", "the old cat sat on the mat"]
    replace = conditions.Replace("the cat", "the old cat")
    ds = conditions.run(
        model, Prompts.from_texts(model, texts[:1]), {"old": replace}, permutations=20
    )
    there = ds["attention_weight"].sel(condition="old", layer=0, head=0, example=0).notnull()
    assert there.values[:-1].sum() >= len(texts[0].split()) - 2
    whole = pattern(model, Prompts.from_texts(model, texts[1:]).clean[0])
    last = whole[0, 0, -1]
    assert 0 < last.max() <= 1


def test_chosen_layers_are_read_and_tests_are_corrected(model, prompts):
    ds = conditions.run(model, prompts, {"Miess": Insert(SLASHES)}, layers=[0, 2], permutations=500)
    assert ds["layer"].values.tolist() == [0, 2]
    some = ds.sel(condition="Miess")
    assert (some["p_adjusted"] >= some["p_value"] - 1e-12).all()
    assert ds["attention_weight"].notnull().any(("pos", "example")).all()


def test_a_planted_change_is_found_and_ranked_first():
    rng = np.random.default_rng(0)
    plain = rng.uniform(0.1, 0.2, size=(2, 3, 5, 40))
    moved = plain + rng.normal(0, 0.01, size=plain.shape)
    moved[1, 2] -= 0.05
    from tlkit.studies.conditions.compare import tests as tested

    dims = ("condition", "layer", "head", "pos", "example")
    ds = build(
        {"attention_weight": (dims, np.stack([plain, moved]))},
        {"condition": ["None", "Miess"]},
        {"baseline": "None"},
    )  # fmt: skip
    ds = tested(ds, "None", first_token=True, seed=0, permutations=2000)
    one = ds.sel(condition="Miess")
    assert float(one["p_adjusted"].sel(layer=1, head=2)) < 0.01
    assert float(one["effect_size"].sel(layer=1, head=2)) < -3
    first = conditions.ranked(conditions.changed_heads(ds, "Miess", permutations=500), 1).iloc[0]
    assert (first["layer"], first["head"]) == (1, 2)
    assert first["difference"] == pytest.approx(-0.05, abs=0.005)
    swapped = conditions.changed_heads(ds, "None", "Miess", permutations=500)
    assert float(swapped["difference"].sel(layer=1, head=2)) > 0.04
    drawn = str(plot(swapped, variable="effect_size").layout.title.text)
    assert "effect size of attention weight: None against Miess" in drawn


def test_a_token_that_one_condition_lacks_counts_under_none():
    weight = np.full((2, 1, 1, 3, 4), 0.2)
    weight[1, :, :, 1:] = 0.1
    weight[1, :, :, 0] = np.nan  # a replaced token
    weight[0, :, :, 0] = 0.9
    dims = ("condition", "layer", "head", "pos", "example")
    ds = build({"attention_weight": (dims, weight)}, {"condition": ["None", "x"]},
               {"baseline": "None"})  # fmt: skip
    found = conditions.changed_heads(ds, "x", permutations=50)
    assert float(found["difference"].squeeze()) == pytest.approx(-0.1, abs=1e-6)
    rest = conditions.changed_heads(ds, "x", first_token=False, permutations=50)
    assert float(rest["difference"].squeeze()) == pytest.approx(-0.1, abs=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"conditions": {}}, "nothing to compare"),
        ({"conditions": ["Miess"]}, "mapping of labels"),
        ({"conditions": {"x": 3}}, "'x' is a int"),
        ({"conditions": {"x": Insert("/ ")}, "layers": [7]}, "layers 0 to 2"),
        ({"conditions": {"x": Insert("/ ")}, "queries": "some"}, "use 'all' or 'original'"),
        ({"conditions": {"x": Insert("/ " * 200)}}, "tokens long; the model was made for 128"),
        ({"conditions": {"x": conditions.Replace("zebra", "horse")}}, "does not have the words"),
        ({"conditions": {"x": conditions.System("Be brief.")}}, "chat=True"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(model, prompts, arguments, message):
    with pytest.raises(SpecError, match=message):
        conditions.run(model, prompts, **arguments)


def test_other_refusals(model, prompts, found):
    with pytest.raises(SpecError, match="2 prompts and there are 3"):
        conditions.run(model, prompts, {"x": prompts[:2]})
    with pytest.raises(SpecError, match="one token"):
        conditions.run(model, Prompts.from_tokens([[5]], model=model), {"x": Knockout(keys=(0,))})
    with pytest.raises(SpecError, match="no condition 'Mless'; there are None, Miess"):
        conditions.changed_heads(found, "Mless")
    with pytest.raises(SpecError, match="no statistic"):
        conditions.changed_heads(found, "Miess", statistic="weight")


def test_the_weight_on_a_span_is_the_sum_of_its_columns(model):
    texts = ["The cat sat on the mat.", "A dog ran far."]
    prompts = Prompts.from_texts(model, texts, spans={"animal": ["cat", "dog"]})
    ds = conditions.run(model, prompts, {"Miess": Insert("/ " * 3, at="start")})
    found = conditions.on_span(ds, prompts, "animal")
    for example, span in enumerate(prompts.spans["animal"]):
        for layer in range(model.cfg.n_layers):
            a = pattern(model, prompts.clean[example])[layer]
            n = a.shape[-1]
            wanted = sum(a[:, k + 1 :, k].mean(-1) for k in range(span.start, span.stop))
            got = found["span_weight"].sel(condition="None", layer=layer, example=example)
            assert n > span.stop
            np.testing.assert_allclose(got, wanted, atol=1e-6)
    tested = conditions.changed_heads(found, "Miess", statistic="span_weight")
    assert (tested["difference"].values[0] < 0).any()


def test_on_span_says_what_is_missing(model):
    prompts = Prompts.from_texts(model, ["The cat sat."], spans={"animal": ["cat"]})
    ds = conditions.run(model, prompts, {"Miess": Insert("/ ", at="start")})
    with pytest.raises(SpecError, match="no span 'dog'; they have animal"):
        conditions.on_span(ds, prompts, "dog")
    other = Prompts.from_texts(model, ["A cat sat."], spans={"animal": ["cat"]})
    with pytest.raises(SpecError, match="not the prompts"):
        conditions.on_span(ds, other, "animal")


def test_what_cannot_be_drawn_or_tested_is_said(model):
    prompts = Prompts.from_texts(model, ["The cat sat.", "A dog ran."])
    ds = conditions.run(model, prompts, {"Miess": Insert("/ ", at="start")})
    with pytest.raises(SpecError, match="needs heads"):
        conditions.lines(ds, [])
    with pytest.raises(SpecError, match="not a whole study"):
        conditions.ranked(ds)
    with pytest.raises(SpecError, match="not measured under 'None'"):
        conditions.changed_heads(ds, "Miess", statistic="lambda_q")


def test_without_the_affine_claim_all_else_is_the_same(model, prompts, found):
    insert = {"None": None, "Miess": Insert(SLASHES, at="end")}
    ds = conditions.run(model, prompts, insert, affine=False, permutations=200)
    assert not {"lambda_q", "affine_residual"} & set(ds.data_vars)
    for name in ds.data_vars:
        np.testing.assert_array_equal(ds[name].values, found[name].values)
