"""Knockout in closed form, from Hugging Face's own attention weights, values and output matrix."""

import numpy as np
import pytest
import torch

from tlkit.engine.run import run
from tlkit.models.tiny import tiny
from tlkit.prompts.prompts import Prompts
from tlkit.spec.attention import Knockout, ScaleEdges
from tlkit.spec.interventions import Ablate, Patch
from tlkit.spec.metrics import KL
from tlkit.spec.sites import Site
from tlkit.spec.sweeps import Condition, Sweep

ENGINES = ("packed", "reference")
IDS = [0, 40, 41, 300, 17, 90, 12, 33]
SHORT = [0, 290, 12, 33, 91]
KEYS, WHOLE = (1, 2), tuple(range(8))
LAYER = 1


def own_attention(hf, family, layer):
    """The matrices before and behind an attention pattern."""
    if family == "gptj":
        attention = hf.transformer.h[layer].attn
        return attention.v_proj, attention.out_proj
    attention = hf.model.layers[layer].self_attn
    return attention.v_proj, attention.o_proj


def changed_logits(family, ids, change, layer=LAYER):
    """Logits of a fresh Hugging Face model whose z in one layer is a changed pattern times v."""
    hf = tiny(family)
    values, output = own_attention(hf, family, layer)
    seen = []
    handle = values.register_forward_hook(lambda module, args, out: seen.append(out[0]))
    with torch.no_grad():
        pattern = hf(torch.tensor([ids]), output_attentions=True).attentions[layer][0]
        handle.remove()
        heads = len(pattern)
        v = seen[0].view(len(ids), -1, output.weight.shape[1] // heads)
        v = v.repeat_interleave(heads // v.shape[1], dim=1)
        z = torch.einsum("hqk,khd->qhd", change(pattern.clone()), v).flatten(1)
        handle = output.register_forward_pre_hook(lambda m, args: (z[None],))
        logits = hf(torch.tensor([ids])).logits[0]
        handle.remove()
    return logits


def zeroed(queries, keys, heads=slice(None), factor=0.0):
    def change(pattern):
        for query in queries:
            pattern[heads, query, list(keys)] *= factor
        return pattern

    return change


def renormalised(queries, keys, heads=slice(None)):
    def change(pattern):
        for query in queries:
            pattern[heads, query, list(keys)] = 0
            total = pattern[heads, query].sum(-1, keepdim=True)
            pattern[heads, query] = torch.where(total > 0, pattern[heads, query] / total, 0.0)
        return pattern

    return change


def everything(logits):
    """Not a number but a fingerprint: weighs each position and each token apart."""
    positions = torch.arange(1, logits.shape[1] + 1)[:, None]
    return (logits[0] * torch.cos(positions * torch.arange(logits.shape[2]))).sum() / 64


def found(model, intervention, engine, ids=IDS):
    """The fingerprint under an intervention; every position of the prompt goes into it."""
    prompts = Prompts.from_tokens([ids])
    sweep = Sweep.over([Condition("one", (intervention,))])
    return float(run(model, prompts, sweep, everything, engine=engine)["value"].squeeze())


AFTER = range(3, len(IDS))  # strictly after the last key
CASES = {
    "after the softmax": (Knockout(keys=KEYS, layers=LAYER), zeroed(AFTER, KEYS)),
    "before the softmax": (
        Knockout(keys=KEYS, layers=LAYER, mode="-inf"),
        renormalised(AFTER, KEYS),
    ),
    "some heads and queries": (
        Knockout(queries=(4, 7), keys=3, layers=LAYER, heads=(0, 3), mode="-inf"),
        renormalised((4, 7), (3,), [0, 3]),
    ),
    "edges within the keys": (
        Knockout(queries=(2, 3), keys=(1, 2, 3), layers=LAYER),
        zeroed((2, 3), (1, 2, 3)),
    ),
    "a whole row, after": (
        Knockout(queries=3, keys=WHOLE, layers=LAYER),
        zeroed((3,), WHOLE),
    ),
    "a whole row, before": (
        Knockout(queries=3, keys=WHOLE, layers=LAYER, mode="-inf"),
        zeroed((3,), WHOLE),  # a row without keys attends to nothing
    ),
    "multiplied": (
        ScaleEdges(keys=KEYS, layers=LAYER, factor=2.5),
        zeroed(AFTER, KEYS, factor=2.5),
    ),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("family", ["llama3", "gptj", "mistral"])
def test_closed_forms(tiny_bridge, family, case, engine):
    intervention, change = CASES[case]
    expected = everything(changed_logits(family, IDS, change)[None])
    plain = everything(changed_logits(family, IDS, lambda pattern: pattern)[None])
    assert abs(expected - plain) > 1e-4
    value = found(tiny_bridge(family), intervention, engine)
    assert value == pytest.approx(float(expected), abs=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("mode", ["zero", "-inf"])
def test_a_row_without_keys_sees_no_later_token(tiny_bridge, mode, engine):
    """Neither rows of the future nor a uniform row: what a large negative number would give."""

    def at_three(logits):
        return logits[0, 0, :50].square().mean()

    at_three.positions = 3
    others = [*IDS[:4], 200, 201, 202, 203]
    cut = Knockout(queries=3, keys=(0, 1, 2, 3), mode=mode)
    sweep = Sweep.over([Condition("cut", (cut,))])
    prompts = Prompts.from_tokens([IDS, others])
    one, other = run(tiny_bridge("llama3"), prompts, sweep, at_three, engine=engine)["value"][0, 0]
    assert np.isfinite(one)
    assert float(one) == pytest.approx(float(other), abs=1e-6)
    # Nothing comes in by attention: the same as taking attention's output away there.
    gone = Sweep.over([Condition("z", (Ablate(Site("z", pos=3)),))])
    same = run(tiny_bridge("llama3"), prompts, gone, at_three, engine=engine)["value"][0, 0, 0]
    assert float(one) == pytest.approx(float(same), abs=1e-6)


@pytest.mark.parametrize("engine", ENGINES)
def test_keys_outside_a_sliding_window_cannot_be_cut(tiny_bridge, engine):
    """Mistral's window is 4: in one layer only the three tokens after a key see it."""
    prompts = Prompts.from_tokens([IDS])
    layer = 2

    def effect(queries):
        sweep = Sweep.over([Condition("cut", (Knockout(queries=queries, keys=1, layers=layer),))])

        def all_positions(logits):
            return logits[0, list(queries)].square().sum()

        plain = everything_of(tiny("mistral"), queries)
        value = run(tiny_bridge("mistral"), prompts, sweep, all_positions, engine=engine)
        return abs(float(value["value"].squeeze()) - plain)

    def everything_of(hf, queries):
        with torch.no_grad():
            return float(hf(torch.tensor([IDS])).logits[0, list(queries)].square().sum())

    assert effect((2, 3, 4)) > 1e-3
    assert effect((5, 6, 7)) == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_cumulative_knockout_is_the_sum_of_its_layers(tiny_bridge, engine):
    model, prompts = tiny_bridge("llama3"), Prompts.from_tokens([IDS, SHORT])
    cumulative = Sweep(Knockout(keys=KEYS), layers=[(0,), (0, 1), (0, 1, 2)])
    several = Sweep.over([
        Condition(str(k), tuple(Knockout(keys=KEYS, layers=layer) for layer in range(k + 1)))
        for k in range(3)
    ])  # fmt: skip
    everywhere = Sweep.over([Condition("all", (Knockout(keys=KEYS),))])
    one = run(model, prompts, cumulative, KL(), engine=engine)["value"].values
    two = run(model, prompts, several, KL(), engine=engine)["value"].values
    three = run(model, prompts, everywhere, KL(), engine=engine)["value"].values
    np.testing.assert_allclose(one, two, atol=1e-6)
    np.testing.assert_allclose(one[:, 2:], three, atol=1e-6)
    assert one.min() > 1e-5


@pytest.mark.parametrize("engine", ENGINES)
def test_a_span_is_cut_from_every_token_strictly_after_it(tiny_bridge, engine):
    prompts = Prompts.from_tokens([IDS, SHORT], spans={"subject": [(1, 3), (2, 4)]})
    model = tiny_bridge("llama3")
    named = Sweep.over([Condition("cut", (Knockout(keys="subject"),))])
    value = run(model, prompts, named, everything, engine=engine)["value"][0, 0].values
    for example, (ids, keys) in enumerate([(IDS, (1, 2)), (SHORT, (2, 3))]):
        queries = tuple(range(keys[-1] + 1, len(ids)))
        cut = Knockout(queries=queries, keys=keys)
        assert found(model, cut, engine, ids) == pytest.approx(float(value[example]), abs=1e-6)
        more = Knockout(queries=(keys[-1], *queries), keys=keys)
        assert abs(found(model, more, engine, ids) - float(value[example])) > 1e-5


@pytest.mark.parametrize("engine", ENGINES)
def test_patched_patterns_are_the_clean_patterns_times_the_corrupted_values(tiny_bridge, engine):
    """On a family whose pattern hook is read-only, and on one where it is not."""
    corrupted = [0, 40, 41, 290, 17, 90, 12, 30]
    prompts = Prompts.from_tokens([IDS], [corrupted])
    for family in ("gptj", "llama3"):
        with torch.no_grad():
            clean = tiny(family)(torch.tensor([IDS]), output_attentions=True).attentions[LAYER][0]
        expected = changed_logits(family, corrupted, lambda pattern, clean=clean: clean)
        sweep = Sweep.over([Condition("p", (Patch(Site("pattern", layer=LAYER)),))])
        value = run(tiny_bridge(family), prompts, sweep, everything, engine=engine)["value"]
        plain = changed_logits(family, corrupted, lambda pattern: pattern)
        assert abs(everything(expected[None]) - everything(plain[None])) > 1e-4
        assert float(value.squeeze()) == pytest.approx(float(everything(expected[None])), abs=1e-5)
