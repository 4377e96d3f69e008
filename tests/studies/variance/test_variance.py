"""Attention variance, against formulas on whole patterns and against patterns one can work out.

Faults to plant: biased instead of unbiased variance; keys of the window counted; ranks ascending;
the union of top tokens over the wrong layers; documents cut at the wrong end.
"""

import json

import numpy as np
import pytest
import torch

from tlkit.errors import SpecError
from tlkit.models.bridge import Parts, unbridged
from tlkit.prompts.prompts import Prompts
from tlkit.studies import variance
from tlkit.studies.variance.scores import Scores

TEXT = "The cat sat on the mat and looked at the dog, which slept beside the door of the house. "
DOCUMENTS = [{"id": "a", "text": TEXT}, {"id": "b", "text": TEXT[::-1]}]
W = 4


@pytest.fixture(scope="module")
def model(tiny_bridge):
    return tiny_bridge("llama3")


@pytest.fixture(scope="module")
def found(model):
    return variance.run(model, DOCUMENTS, window=W, pool=3, top=3)


def patterns(model, text):
    ids = Prompts.from_texts(model, [text]).clean[0]
    with torch.no_grad(), unbridged(model) as hf:
        out = hf(torch.tensor([ids]), output_attentions=True, use_cache=False).attentions
    # transformers may have put its recording hooks on a shared model twice, bridged and unbridged.
    return torch.cat(list(out)[:: len(out) // model.cfg.n_layers]).double().numpy()


def ranks_by_hand(row, pool):
    n = len(row)
    half = pool // 2
    smooth = [row[max(0, i - half) : i + half + 1].mean() for i in range(n)]
    order = sorted(range(n), key=lambda i: -smooth[i])
    ranks = np.empty(n)
    for place, i in enumerate(order):
        ranks[i] = place / (n - 1)
    return ranks, set(order[:3])


@pytest.mark.parametrize("family", ["llama3", "mistral", "gpt2"])
def test_every_kind_is_its_formula_on_whole_patterns(tiny_bridge, family):
    model = tiny_bridge(family)
    ds = variance.run(model, DOCUMENTS, window=W, pool=3, top=3)
    for j, document in enumerate(DOCUMENTS):
        a = patterns(model, document["text"])
        n = a.shape[2]
        rows = a[:, :, -W:, : n - W]
        temporal = rows.var(2, ddof=1).sum(-1)
        mine = ds["variance"].sel(kind="temporal").isel(model=0, document=j).values
        np.testing.assert_allclose(mine, temporal, rtol=1e-4, atol=1e-7)
        whole = ds["layer_variance"].sel(kind="temporal").isel(model=0, document=j).values
        np.testing.assert_allclose(whole, temporal.sum(1), rtol=1e-4)
        column = a.sum(2).var(-1, ddof=1)
        mine = ds["variance"].sel(kind="column").isel(model=0, document=j).values
        np.testing.assert_allclose(mine, column, rtol=1e-4, atol=1e-6)
        low, high = column.min(1, keepdims=True), column.max(1, keepdims=True)
        whole = ds["layer_variance"].sel(kind="column").isel(model=0, document=j).values
        np.testing.assert_allclose(whole, ((column - low) / (high - low)).mean(1), atol=1e-3)
        sink = np.array([[h[1:, 0].mean() for h in layer] for layer in a])
        np.testing.assert_allclose(ds["sink_share"].isel(model=0, document=j), sink, atol=1e-5)


def test_ranks_are_followed_from_layer_to_layer(model, found):
    a = patterns(model, DOCUMENTS[0]["text"])
    layers, _, n, _ = a.shape
    mean = a[:, :, -W:, : n - W].mean(2)
    for head in (0, 3, None):
        seen, top = [], set()
        for layer in range(layers):
            row = mean[layer].mean(0) if head is None else mean[layer, head]
            ranks, best = ranks_by_hand(row, 3)
            seen.append(ranks)
            top |= best
            if head is None:
                mine = found["layer_variance"].sel(kind="rank", document="a").values[0, layer]
            else:
                mine = found["variance"].sel(kind="rank", document="a", head=head).values[0, layer]
            if layer == 0:
                assert np.isnan(mine)
            else:
                expected = np.var(seen, axis=0, ddof=1)[sorted(top)].mean()
                assert mine == pytest.approx(expected, rel=1e-3)


def shown(model, pattern, top):
    """Scores of patterns of one's own, ``[layer, query, key]``, alike in every head."""
    parts, weights = Parts(model), torch.tensor(pattern, dtype=torch.float32)
    n = weights.shape[2]
    scores = Scores(parts, list(range(n)), W, 1, top)
    for layer in range(parts.n_layers):
        whole = weights[layer].expand(1, parts.n_heads, n, n)
        scores.reader.enter(layer, torch.zeros(1, 1, n, 1))
        for first in range(0, n, 5):
            stop = min(n, first + 5)
            scores.reader.block(layer, first, 0, whole[:, :, first:stop, :stop])
        scores.reader.leave(layer, torch.zeros(1, n, 1, 1))
    scores.finish()
    return scores


N = 12
EYE, EVEN = np.eye(N), np.tril(np.ones((N, N))) / np.arange(1, N + 1)[:, None]
FIRST = EYE[np.zeros(N, int)]


@pytest.mark.parametrize(
    ("pattern", "temporal", "column"),
    [
        (FIRST, 0.0, np.var([N, *[0] * (N - 1)], ddof=1)),  # all on the first token, always
        (EYE, 0.0, 0.0),  # each on itself: nothing before the window, all keys alike
        (EVEN, (N - W) * np.var([1 / n for n in range(N - W + 1, N + 1)], ddof=1),
         np.var(EVEN.sum(0), ddof=1)),
    ],
    ids=["sink", "own", "even"],
)  # fmt: skip
def test_closed_forms(model, pattern, temporal, column):
    scores = shown(model, np.broadcast_to(pattern, (3, N, N)).copy(), top=3)
    assert scores.heads["temporal"][0, 0] == pytest.approx(temporal, abs=1e-9)
    assert scores.heads["column"][0, 0] == pytest.approx(column, abs=1e-6)
    assert scores.heads["rank"][1, 0] == 0.0  # both layers order the keys alike


def test_a_reversed_order_moves_ranks_as_far_as_can_be(model):
    rising = np.zeros((N, N))
    rising[:, : N - W] = np.arange(1, N - W + 1)
    falling = np.zeros((N, N))
    falling[:, : N - W] = np.arange(N - W, 0, -1)
    scores = shown(model, np.tril(np.stack([rising, falling, falling])), top=1)
    # The top token of each layer is the last of the other: ranks 0 and 1, variance 1/2.
    assert scores.heads["rank"][1, 0] == pytest.approx(0.5)


def test_longer_documents_are_cut_and_counted(model):
    ids = Prompts.from_texts(model, [TEXT]).clean[0]
    n = len(ids)
    from tlkit.studies.variance.documents import read

    assert read(model, [TEXT], 10, "middle", 6)[0].ids == [*ids[:5], *ids[n - 5 :]]
    assert read(model, [TEXT], 10, "end", 6)[0].ids == list(ids[:10])
    windows = read(model, [TEXT], 10, "windows", 6)
    assert [one.ids for one in windows] == [
        list(ids[i : i + 10]) for i in range(0, n, 10) if len(ids[i : i + 10]) >= 6
    ]
    ds = variance.run(model, [{"id": "a", "text": TEXT}], max_tokens=12, window=W)
    assert json.loads(ds.attrs["documents"]) == {"a": [n, 12]}
    assert read(model, [TEXT], n, "middle", 6)[0].ids == list(ids)


def test_two_models_are_compared_document_by_document(model, tiny_bridge):
    texts = [TEXT[i:] for i in range(0, 24, 4)]
    ds = variance.run({"original": model, "other": tiny_bridge("qwen3")}, texts, window=W)
    assert ds["variance"].dims == ("kind", "model", "layer", "head", "document")
    same = variance.run({"one": model, "two": model}, texts, window=W)
    found = variance.compare(same, "one", "two")
    assert (found["difference"] == 0).all()
    assert (found["p_value"] == 1).all()
    moved = variance.compare(ds, "original", "other", permutations=500)
    values = variance.by_layer(ds)["layer_variance"]
    expected = (values.sel(model="other") - values.sel(model="original")).mean("document")
    np.testing.assert_allclose(moved["difference"], expected, rtol=1e-5)
    assert (moved["low"] <= moved["difference"]).all()


@pytest.mark.parametrize(
    ("documents", "more", "message"),
    [
        ([], {}, "There are no documents"),
        ("a text " * 40, {}, "documents is one text; give a list"),
        ([" "], {}, "'document 0' is empty"),
        (["cat"], {}, "tokens; 34 are needed"),
        ([{"id": "a"}], {}, "no text and no row"),
        ([DOCUMENTS[0]] * 2, {"window": 4}, "Two documents are called 'a'"),
        ([TEXT], {"max_tokens": 5000, "window": 4}, "it can be from 6 to 128"),
        ([TEXT], {"longer": "start", "window": 4}, "use 'middle', 'end' or 'windows'"),
        ([TEXT], {"window": 1}, "window is 1"),
        ([TEXT], {"pool": 4}, "at least 1 and odd"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(model, documents, more, message):
    with pytest.raises(SpecError, match=message):
        variance.run(model, documents, **more)


def test_names_that_are_not_there(found):
    with pytest.raises(SpecError, match="no kind 'spatial'"):
        variance.by_layer(found, "spatial")
    with pytest.raises(SpecError, match="no model 'x'"):
        variance.compare(found, "x", "y")


def test_nothing_of_the_models_is_left_behind(model):
    parts = Parts(model)
    before = [a._forward_hooks.copy() for a in parts.attentions]
    variance.run(model, [TEXT], window=W)
    assert [a._forward_hooks for a in parts.attentions] == before
    assert all("_tlkit" not in a.__dict__ for a in parts.attentions)


def test_families_are_panels_with_their_own_models(model, tiny_bridge):
    one = variance.run({"original": model}, DOCUMENTS, window=W)
    two = variance.run({"original": tiny_bridge("mistral"), "tuned": model}, DOCUMENTS, window=W)
    both = variance.by_layer({"A": one, "B": two}, "column")
    assert both["group"].values.tolist() == ["A", "B"]
    assert both["model"].values.tolist() == ["original", "tuned"]
    np.testing.assert_array_equal(
        both["layer_variance"].sel(group="B", model="tuned").values,
        two["layer_variance"].sel(kind="column", model="tuned").values,
    )
    assert np.isnan(both["layer_variance"].sel(group="A", model="tuned")).all()


def test_tokens_that_nothing_read_are_counted(model):
    ids = Prompts.from_texts(model, [TEXT]).clean[0]
    ds = variance.run(model, [TEXT], window=W, max_tokens=len(ids) - 3, longer="windows")
    assert ds.attrs["tokens_left_out"] == 3  # the last window of three is too short
    assert variance.run(model, [TEXT], window=W).attrs["tokens_left_out"] == 0


def test_several_models_need_names(model):
    with pytest.raises(SpecError, match="need names"):
        variance.run([model, model], DOCUMENTS)
