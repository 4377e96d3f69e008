"""Attention streamed in blocks is the attention of Hugging Face's own eager code.

Faults to plant: shift the causal mask by one; forget the sliding window; let a key's own query
count in its column; divide by all queries instead of those behind; drop a block's offset.
"""

import numpy as np
import pytest
import torch

from tlkit.engine.streaming import Reader, dense, stream
from tlkit.engine.tallies import KEYS, ROWS, Several, Tallies, Window
from tlkit.models.bridge import Parts, unbridged
from tlkit.models.tiny import FAMILIES

IDS = [[3, 40, 41, 300, 17, 5, 9, 77, 31, 8, 120], [9, 290, 12, 33, 90, 91, 7]]
LENGTHS = [len(row) for row in IDS]


def eager(model, ids, positions=None):
    """Patterns ``[layer, head, query, key]`` of Hugging Face's model."""
    with torch.no_grad(), unbridged(model) as hf:
        # Without a mask of ones, transformers takes a jump in positions for a new sequence.
        more = {"attention_mask": torch.ones(1, len(ids), dtype=torch.long)}
        if positions is not None:
            more["position_ids"] = torch.tensor([positions])
        found = hf(torch.tensor([ids]), output_attentions=True, use_cache=False, **more).attentions
    # transformers may have put its recording hooks on a shared model twice, bridged and unbridged.
    return torch.cat(list(found)[:: len(found) // model.cfg.n_layers]).float().numpy()


class Whole(Reader):
    """Puts blocks together again."""

    def __init__(self, layers, heads):
        self.weights = np.zeros((layers, 2, heads, max(LENGTHS), max(LENGTHS)))
        self.z = {}

    def block(self, layer, first, low, weights):
        queries, keys = weights.shape[2:]
        self.weights[layer, :, :, first : first + queries, low : low + keys] += weights.numpy()

    def leave(self, layer, z):
        self.z[layer] = z


@pytest.mark.parametrize("family", [f for f in FAMILIES if f not in ("falcon", "bloom")])
@pytest.mark.parametrize("most", [3, 256])
def test_blocks_are_hugging_faces_own_patterns(tiny_bridge, family, most):
    model = tiny_bridge(family)
    parts = Parts(model)
    reader = Whole(parts.n_layers, parts.n_heads)
    stream(parts, IDS, reader, most=most)
    for i, ids in enumerate(IDS):
        n = len(ids)
        np.testing.assert_allclose(
            reader.weights[:, i, :, :n, :n], eager(model, ids), atol=2e-6
        )  # fmt: skip
    if family == "mistral":  # its window is shorter than the prompt
        assert (reader.weights[:, 0, :, 10, :7] == 0).all()


@pytest.mark.parametrize("family", ["falcon", "bloom", "gemma3"])
def test_whole_patterns_of_the_slow_engine_give_the_same(tiny_bridge, family):
    model = tiny_bridge(family)
    parts = Parts(model)
    fast, slow = (Whole(parts.n_layers, parts.n_heads) for _ in range(2))
    stream(parts, IDS, fast)
    dense(parts, IDS, slow, most=4)
    n = LENGTHS[1]
    np.testing.assert_allclose(
        fast.weights[:, 1, :, :n, :n], slow.weights[:, 1, :, :n, :n], atol=2e-6
    )
    np.testing.assert_allclose(fast.weights[:, 0], slow.weights[:, 0], atol=2e-6)
    for layer, z in fast.z.items():
        np.testing.assert_allclose(z[0], slow.z[layer][0], atol=2e-5)


def test_the_run_ends_at_the_last_layer_that_is_asked_for_and_leaves_the_model_alone(tiny_bridge):
    model = tiny_bridge("llama3")
    parts = Parts(model)
    before = model(torch.tensor(IDS[:1]))
    seen = []

    class Watch(Reader):
        def enter(self, layer, v):
            seen.append(layer)

    stream(parts, IDS, Watch(), last=1)
    assert seen == [0, 1]
    assert torch.equal(model(torch.tensor(IDS[:1])), before)


def test_positions_may_be_given(tiny_bridge):
    model = tiny_bridge("llama3")
    parts = Parts(model)
    moved = [0, 1, 2, 9, 10, 11, 12, 13, 14, 15, 16]
    reader = Whole(parts.n_layers, parts.n_heads)
    stream(parts, IDS[:1], reader, positions=[moved])
    expected = eager(model, IDS[0], moved)
    np.testing.assert_allclose(reader.weights[:, 0], expected, atol=2e-6)
    assert np.abs(expected - eager(model, IDS[0])).max() > 1e-3


def by_hand(pattern, chosen):
    """Every mean of one example's ``[layer, head, query, key]``, by loops over rows."""
    layers, heads, n, _ = pattern.shape
    found = {name: np.full((layers, heads), np.nan) for name in ROWS}
    found |= {name: np.full((layers, heads, n), np.nan) for name in KEYS}
    for layer in range(layers):
        for head in range(heads):
            a = pattern[layer, head].astype(np.float64)
            for key in range(n):
                rows = [q for q in chosen if q > key]
                if rows:
                    found["columns"][layer, head, key] = np.mean([a[q, key] for q in rows])
                found["totals"][layer, head, key] = sum(a[q, key] for q in chosen)
            rows = {name: [] for name in ROWS}
            for q in chosen:
                row = a[q, : q + 1]
                if q > 0:
                    kept = row[row > 0]
                    rows["sink"].append(row[0])
                    rows["entropy"].append(-(kept * np.log(kept)).sum() / np.log(q + 1))
                    rows["distance"].append((row * (q - np.arange(q + 1))).sum() / q)
                if q > 1:
                    rest = row[1:] / row[1:].sum()
                    kept = rest[rest > 0]
                    rows["entropy_rest"].append(-(kept * np.log(kept)).sum() / np.log(q))
                    far = (rest * (q - np.arange(1, q + 1))).sum() / (q - 1)
                    rows["distance_rest"].append(far)
            for name, several in rows.items():
                found[name][layer, head] = np.mean(several)
    return found


@pytest.mark.parametrize("family", ["gpt2", "mistral", "qwen3"])
@pytest.mark.parametrize("queries", [None, [(2, 3, 5, 8, 10), (0, 1, 4, 6)]])
@pytest.mark.parametrize("most", [4, 256])
def test_means_are_those_of_whole_patterns(tiny_bridge, family, queries, most):
    model = tiny_bridge(family)
    parts = Parts(model)
    tallies = Tallies(LENGTHS, parts.n_layers, (*ROWS, *KEYS), queries=queries)
    stream(parts, IDS, tallies, most=most)
    for i, ids in enumerate(IDS):
        chosen = range(len(ids)) if queries is None else queries[i]
        expected = by_hand(eager(model, ids), chosen)
        for name in ROWS:
            if family == "mistral" and name.endswith("_rest"):
                continue  # its rows may leave nothing but rounding beside the first token
            np.testing.assert_allclose(
                tallies.found(name)[:, i], expected[name], atol=2e-5, err_msg=name
            )
        for name in KEYS:
            mine = tallies.found(name)[:, i, :, : len(ids)]
            np.testing.assert_allclose(mine, expected[name], atol=2e-6, err_msg=name)


class Given:
    """A pattern of one's own, shown in blocks of three queries."""

    def __init__(self, pattern):
        self.pattern = torch.tensor(pattern, dtype=torch.float32)[None, None]

    def show(self, reader):
        n = self.pattern.shape[2]
        for first in range(0, n, 3):
            stop = min(n, first + 3)
            reader.block(0, first, 0, self.pattern[:, :, first:stop, :stop])
        reader.leave(0, torch.zeros(1, n, 1, 1))


N = 8
UNIFORM = np.tril(np.ones((N, N))) / np.arange(1, N + 1)[:, None]
OWN, SINK = np.eye(N), np.eye(N)[np.zeros(N, int)]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (UNIFORM, {"entropy": 1, "entropy_rest": 1, "distance": 0.5, "distance_rest": 0.5,
                   "sink": np.mean([1 / n for n in range(2, N + 1)])}),
        (OWN, {"entropy": 0, "entropy_rest": 0, "distance": 0, "distance_rest": 0, "sink": 0}),
        (SINK, {"entropy": 0, "distance": 1, "sink": 1}),
    ],
    ids=["uniform", "own", "sink"],
)  # fmt: skip
def test_closed_forms(pattern, expected):
    tallies = Tallies([N], 1, (*ROWS, *KEYS))
    Given(pattern).show(tallies)
    for name, value in expected.items():
        assert tallies.found(name)[0, 0, 0] == pytest.approx(value, abs=1e-6), name
    columns = [np.mean(pattern[k + 1 :, k]) for k in range(N - 1)]
    np.testing.assert_allclose(tallies.found("columns")[0, 0, 0, :-1], columns, atol=1e-6)
    assert np.isnan(tallies.found("columns")[0, 0, 0, -1])
    np.testing.assert_allclose(tallies.found("totals")[0, 0, 0], pattern.sum(0), atol=1e-6)


def test_layers_that_are_not_asked_for_are_nan(tiny_bridge):
    parts = Parts(tiny_bridge("gpt2"))
    tallies = Tallies(LENGTHS, parts.n_layers, ("sink",), layers=[1])
    stream(parts, IDS, tallies)
    found = tallies.found("sink")
    assert np.isnan(found[[0, 2]]).all()
    assert not np.isnan(found[1]).any()


@pytest.mark.parametrize("family", ["llama", "mistral"])
@pytest.mark.parametrize("size", [1, 4, 50])
def test_the_last_rows_are_kept(tiny_bridge, family, size):
    model = tiny_bridge(family)
    parts = Parts(model)
    rows = {}
    window = Window(LENGTHS[0], size, lambda layer, found: rows.update({layer: found}))
    sums = Tallies(LENGTHS[:1], parts.n_layers, ("totals",))
    stream(parts, IDS[:1], Several(window, sums), most=3)
    expected = eager(model, IDS[0])
    for layer, found in rows.items():
        np.testing.assert_allclose(found, expected[layer][:, -size:], atol=2e-6)
    assert sorted(rows) == list(range(parts.n_layers))
    np.testing.assert_allclose(sums.found("totals")[:, 0], expected.sum(2), atol=2e-6)
