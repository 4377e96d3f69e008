"""Change of the answer's probability, against hooked loops and where nothing flows."""

import numpy as np
import pytest
import torch

from tlkit.models.load import HookedTransformer
from tlkit.models.tiny import tiny, tiny_tokenizer
from tlkit.prompts.spans import Span
from tlkit.studies.pathways.examples import Example
from tlkit.studies.pathways.intervention import interventions

PROMPTS = [(0, 40, 41, 300, 17), (0, 40, 42, 300, 17), (0, 40, 43, 300, 17), (0, 9, 8, 7, 6)]
SAID = [(50, 60, 61), (50, 62, 63, 64), (50, 65), (70,)]
BEGINS = [1, 1, 1, 0]  # where in what was said the exact answer begins


@pytest.fixture(scope="module")
def examples():
    """Three questions of one shape, and one alone whose answer is one token."""
    found = []
    for i, (prompt, said, begin) in enumerate(zip(PROMPTS, SAID, BEGINS, strict=True)):
        ids = prompt + said
        exact = Span(len(prompt) + begin, len(ids))
        relation = "capital" if i < 3 else "author"
        found.append(Example(i, ids, len(prompt), (2,), (3,), exact, False, str(i), relation))
    return found


def probability(model, example, hooks):
    """The exact answer's probability by hand."""
    ids = torch.tensor([example.ids[:-1]])
    with torch.no_grad():
        logits = model.run_with_hooks(ids, fwd_hooks=hooks)[0].double()
    total = 1.0
    for at in range(*example.exact):
        total *= float(logits[at - 1].softmax(-1)[example.ids[at]])
    return total


def cutting(edges, blocks):
    def write(pattern, hook):
        for query, key in edges:
            pattern[:, :, query, key] = 0.0
        return pattern

    return [(f"blocks.{block}.attn.hook_pattern", write) for block in blocks]


@pytest.mark.parametrize("family", ["llama3", "gpt2"])
def test_knockouts_equal_hooked_loops(tiny_bridge, family, examples):
    model = tiny_bridge(family)
    found = interventions(model, examples, range(3), mode="zero", seed=0)
    for i, example in enumerate(examples):
        length = len(example.ids) - 1
        base = probability(model, example, [])
        assert found.base[i] == pytest.approx(base, rel=1e-4)
        question = [(query, 2) for query in range(3, length)]
        written = [(q, k) for k in range(example.prompt, length) for q in range(k + 1, length)]
        control = [(query, 3) for query in range(4, length)]
        for k in range(3):
            for group, edges in ((0, question), (1, written)):
                if edges:
                    expected = probability(model, example, cutting(edges, range(k + 1)))
                    assert found.delta_p[0, group, k, i] == pytest.approx(
                        100 * (expected - base), rel=1e-3, abs=1e-6
                    )
            expected = probability(model, example, cutting(control, range(k + 1)))
            assert found.control[k, i] == pytest.approx(100 * (expected - base), rel=1e-3, abs=1e-6)
    assert np.isnan(found.delta_p[0, 1, :, 3]).all()  # one token: nothing to cut


def test_patches_equal_hooked_loops(tiny_bridge, examples):
    model = tiny_bridge("llama3")
    found = interventions(model, examples, range(3), mode="zero", seed=1)
    assert found.paired.tolist() == [True, True, True, False]
    assert np.isnan(found.delta_p[1, :, :, 3]).all()
    for i, example in enumerate(examples[:3]):
        base = probability(model, example, [])
        fitting = []
        for other in examples[:3]:
            if other is example:
                continue
            swapped = torch.tensor([other.ids[:5] + example.ids[5:-1]])
            _, cache = model.run_with_cache(swapped)
            changes = np.zeros((2, 3))
            for group, where in (
                (0, [2]),
                (1, range(example.exact.start - 1, len(example.ids) - 1)),
            ):
                for k in range(3):
                    source = cache[f"blocks.{k}.hook_resid_pre"][0]

                    def write(stream, hook, source=source, where=where):
                        stream[0, list(where)] = source[list(where)]
                        return stream

                    hooks = [(f"blocks.{k}.hook_resid_pre", write)]
                    changes[group, k] = 100 * (probability(model, example, hooks) - base)
            fitting.append(np.allclose(found.delta_p[1, :, :, i], changes, rtol=1e-3, atol=1e-6))
        assert any(fitting)  # the run of one of the two others was put in


def test_the_reference_engine_gives_the_same(tiny_bridge, examples):
    model = tiny_bridge("qwen3")
    fast, slow = (
        interventions(model, examples, [0, 2], mode="-inf", seed=0, packed=packed)
        for packed in (True, False)
    )
    np.testing.assert_allclose(fast.delta_p, slow.delta_p, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(fast.control, slow.control, rtol=1e-3, atol=1e-6)


def test_where_nothing_flows_nothing_changes_at_all(examples):
    model = tiny("llama")
    for block in model.model.layers:  # attention and MLPs add nothing to the stream
        block.self_attn.o_proj.weight.zero_()
        block.mlp.down_proj.weight.zero_()
    bridge = HookedTransformer.from_pretrained(model, tokenizer=tiny_tokenizer(), device="cpu")
    found = interventions(bridge, examples, range(3), mode="zero", seed=0)
    np.testing.assert_array_equal(np.nan_to_num(found.delta_p[0]), 0.0)
    np.testing.assert_array_equal(found.delta_p[1, 0, :, :3], 0.0)  # swapped questions say nothing
    np.testing.assert_array_equal(found.control, 0.0)
