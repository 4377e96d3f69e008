"""Saliency of attention edges against finite differences."""

import numpy as np
import pytest
import torch

from tlkit.engine.edge_gradients import edge_gradients
from tlkit.models.bridge import Parts
from tlkit.prompts.spans import Span
from tlkit.studies.pathways.edge_saliency import detection_loss, saliency
from tlkit.studies.pathways.examples import Example
from tlkit.studies.probes import Probe

IDS = (0, 40, 41, 300, 17, 5, 50)
ONE = Example(0, IDS, 5, (2, 3), (1, 4), Span(5, 7), True, "q", "")


def probe_of(width, seed=0):
    return Probe(np.random.default_rng(seed).normal(size=width), 0.2)


def loss_with(model, probe, layer, edge=None, change=0.0):
    """The detection loss by TransformerLens's own hooks, one attention weight changed."""
    state = {}

    def write(pattern, hook):
        head, query, key = edge[1:]
        pattern[0, head, query, key] += change
        return pattern

    hooks = [] if edge is None else [(f"blocks.{edge[0]}.attn.hook_pattern", write)]
    hooks.append((f"blocks.{layer}.hook_resid_post", lambda x, hook: state.update(h=x.clone())))
    with torch.no_grad():
        model.run_with_hooks(torch.tensor([IDS]), fwd_hooks=hooks)
    return float(detection_loss(state["h"][0, -1].double().float(), probe, True))


@pytest.mark.parametrize("family", ["llama3", "gpt2", "qwen3", "gemma3"])
def test_gradients_are_finite_differences(tiny_bridge, family):
    model = tiny_bridge(family)
    parts = Parts(model)
    probe, layer, step = probe_of(parts.d_model), 2, 1e-2
    patterns, slopes = edge_gradients(
        parts, list(IDS), layer, lambda stream: detection_loss(stream[-1], probe, True)
    )
    _, cache = model.run_with_cache(torch.tensor([IDS]))
    assert len(patterns) == layer + 1
    scale = max(float(one.abs().max()) for one in slopes)
    for block in range(layer + 1):
        expected = cache[f"blocks.{block}.attn.hook_pattern"][0]
        np.testing.assert_allclose(patterns[block], expected, atol=1e-5)
        for head, query, key in ((0, 6, 2), (1, 6, 3), (2, 5, 2), (3, 6, 6)):
            edge = (block, head, query, key)
            both = [loss_with(model, probe, layer, edge, sign * step) for sign in (1, -1)]
            expected = (both[0] - both[1]) / (2 * step)
            found = float(slopes[block][head, query, key])
            assert found == pytest.approx(expected, rel=0.03, abs=5e-3 * scale)


def test_saliency_is_summed_over_heads_and_edges(tiny_bridge):
    model = tiny_bridge("llama3")
    parts, probe = Parts(model), probe_of(Parts(model).d_model)
    exact, full = saliency(parts, ONE, (1, 2, 3, 4), 1, probe)
    patterns, slopes = edge_gradients(
        parts, list(IDS), 1, lambda stream: detection_loss(stream[-1], probe, True)
    )
    for block in range(2):
        each = (patterns[block] * slopes[block]).abs().numpy()
        total = sum(each[h, q, k] for h in range(4) for q in (5, 6) for k in (2, 3))
        assert exact[block] == pytest.approx(total, rel=1e-5)
        assert full[block] == pytest.approx(each[:, 5:, 1:5].sum(), rel=1e-5)
    assert len(exact) == 2
    assert exact[1] > 0


def test_nothing_is_left_behind_on_the_model(tiny_bridge):
    model = tiny_bridge("gpt2")
    before = loss_with(model, probe_of(64), 2)
    edge_gradients(Parts(model), list(IDS), 0, lambda stream: stream[-1].sum())
    assert loss_with(model, probe_of(64), 2) == before
    assert not any(weight.requires_grad for weight in model.parameters())


def test_the_loss_is_binary_cross_entropy():
    probe = Probe(np.array([0.7, -0.2]), 0.1)
    state = torch.tensor([1.5, 2.0])
    p = probe.probability(state.numpy()[None])[0]
    assert float(detection_loss(state, probe, True)) == pytest.approx(-np.log(p), rel=1e-5)
    assert float(detection_loss(state, probe, False)) == pytest.approx(-np.log(1 - p), rel=1e-5)
