"""A model whose circuit is known because every weight of it was set by hand.

A two-layer GPT-2 without MLPs. Its stream has four parts of 12: token, position, token before,
and output. Head 1 of layer 0 looks one token back and writes it to "token before"; head 2 of layer
1 looks for a place whose token before is its own token and copies what stands there to the output:
an induction head (Olsson et al. 2022, arXiv:2209.11895). Head 0 of layer 1 moves tokens about
where nothing reads them. After "A B ... A" the model says B.
"""

import numpy as np
import pytest
import torch
from transformer_lens.model_bridge.sources import build_bridge_from_module
from transformers import GPT2Config, GPT2LMHeadModel

from tlkit.engine.run import run
from tlkit.prompts.prompts import Prompts
from tlkit.spec.attention import Knockout
from tlkit.spec.interventions import Ablate, Patch
from tlkit.spec.metrics import LogitDiff
from tlkit.spec.sites import Site
from tlkit.spec.sweeps import Sweep

PART = 12  # tokens, positions, and the width of a head
TOKEN, POSITION, BEFORE, OUTPUT = (slice(PART * i, PART * (i + 1)) for i in range(4))
SHARP = 8.0
PREVIOUS, INDUCTION, IDLE = (0, 1), (1, 2), (1, 0)

A, B, OTHER, WRONG = 3, 7, 5, 9
CLEAN = [1, A, B, 2, 10, A]  # B follows the first A
NO_MATCH = [1, OTHER, B, 2, 10, A]  # ... here it follows another token
OTHER_COPY = [1, A, WRONG, 2, 10, A]  # ... here another token follows A
FIRST, SECOND, END = 1, 2, 5


def set_head(block, head, query, key, value, output):
    """Give one head its four maps, each [d_model, PART] or [PART, d_model]."""
    own = slice(head * PART, (head + 1) * PART)
    width = 4 * PART
    weight = block.attn.c_attn.weight
    weight[:, own] = query * SHARP
    weight[:, width:][:, own] = key * SHARP
    weight[:, 2 * width :][:, own] = value
    block.attn.c_proj.weight[own] = output


def reading(part):
    """[d_model, PART]: read a part of the stream as it is."""
    matrix = torch.zeros(4 * PART, PART)
    matrix[part] = torch.eye(PART)
    return matrix


@pytest.fixture(scope="module")
def induction():
    config = GPT2Config(
        vocab_size=PART, n_positions=PART, n_embd=4 * PART, n_layer=2, n_head=4, n_inner=4,
        tie_word_embeddings=False,
    )  # fmt: skip
    model = GPT2LMHeadModel(config).eval().requires_grad_(False)
    for name, weight in model.named_parameters():
        weight.fill_(float("ln" in name and name.endswith("weight")))
    base = model.transformer
    base.wte.weight[:, TOKEN] = torch.eye(PART)
    base.wpe.weight[:, POSITION] = torch.eye(PART)
    model.lm_head.weight[:, OUTPUT] = torch.eye(PART)
    one_back = reading(POSITION).roll(1, dims=-1)  # a key at position s answers to s + 1
    set_head(base.h[0], 1, reading(POSITION), one_back, reading(TOKEN), reading(BEFORE).T)
    set_head(base.h[1], 2, reading(TOKEN), reading(BEFORE), reading(TOKEN), reading(OUTPUT).T)
    set_head(base.h[1], 0, reading(POSITION), reading(POSITION), reading(TOKEN), reading(BEFORE).T)
    return build_bridge_from_module(model, "GPT2LMHeadModel", hf_config=model.config)


def pair(corrupted):
    return Prompts.from_tokens([CLEAN], [corrupted], [[B]], [[WRONG]])


def heads_map(model, prompts, engine, **axes):
    sweep = Sweep(Patch(Site("z")), layer=range(2), head=range(4), **axes)
    return run(model, prompts, sweep, LogitDiff(), engine=engine)["recovered"].values[0, ..., 0]


def test_the_model_does_induction(induction):
    with torch.no_grad():
        logits = induction(torch.tensor([CLEAN]))[0, -1]
        assert logits.argmax() == B
        assert logits[B] > 4 * logits.topk(2).values[1].abs()
        assert induction(torch.tensor([OTHER_COPY]))[0, -1].argmax() == WRONG


@pytest.mark.parametrize("engine", ["packed", "reference"])
def test_the_map_of_heads_singles_out_both_heads_of_the_circuit(induction, engine):
    found = heads_map(induction, pair(NO_MATCH), engine)
    expected = np.zeros((2, 4))
    expected[PREVIOUS] = expected[INDUCTION] = 1
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("engine", ["packed", "reference"])
def test_each_head_acts_at_its_position_only(induction, engine):
    found = heads_map(induction, pair(NO_MATCH), engine, pos=range(6))
    expected = np.zeros((2, 4, 6))
    expected[(*PREVIOUS, SECOND)] = expected[(*INDUCTION, END)] = 1
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("engine", ["packed", "reference"])
def test_where_only_the_copied_token_differs_the_first_head_does_not_matter(induction, engine):
    found = heads_map(induction, pair(OTHER_COPY), engine)
    expected = np.zeros((2, 4))
    expected[INDUCTION] = 1
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("engine", ["packed", "reference"])
def test_the_stream_carries_the_answer_along_the_circuit(induction, engine):
    """Into layer 0 the clean token lies at A; into layer 1 at its successor; then at the end."""
    prompts = pair(NO_MATCH)
    sweep = Sweep(Patch(Site("resid_pre")), layer=range(2), pos=range(6))
    found = run(induction, prompts, sweep, LogitDiff(), engine=engine)["recovered"].values[
        0, ..., 0
    ]
    expected = np.zeros((2, 6))
    expected[0, FIRST] = expected[1, SECOND] = 1
    np.testing.assert_allclose(found, expected, atol=1e-3)  # softmax leaks 4e-4
    last = Sweep(Patch(Site("resid_post", layer=1)), pos=range(6))
    found = run(induction, prompts, last, LogitDiff(), engine=engine)["recovered"].values[0, :, 0]
    np.testing.assert_allclose(found, [0, 0, 0, 0, 0, 1], atol=1e-4)


@pytest.mark.parametrize("engine", ["packed", "reference"])
def test_ablating_the_circuit_takes_the_answer_away_and_nothing_else_does(induction, engine):
    sweep = Sweep(Ablate(Site("z")), layer=range(2), head=range(4))
    found = run(induction, pair(NO_MATCH), sweep, LogitDiff(), on="clean", engine=engine)
    clean = float(found["clean"][0, 0])
    left = found["value"].values[0, ..., 0] / clean
    assert clean > 1
    assert abs(left[PREVIOUS]) < 0.7  # B is then one of six tokens that are copied alike
    assert abs(left[INDUCTION]) < 1e-4
    left[PREVIOUS] = left[INDUCTION] = 1
    np.testing.assert_allclose(left, 1, atol=2e-2)  # the idle head's output is 1 % of the norm


@pytest.mark.parametrize("engine", ["packed", "reference"])
@pytest.mark.parametrize("mode", ["zero", "-inf"])
def test_one_cut_edge_of_the_induction_head_takes_the_answer_away(induction, engine, mode):
    cut = Knockout(queries="end", keys=SECOND, layers=1, mode=mode)
    sweep = Sweep(cut, heads=range(4))
    found = run(induction, pair(NO_MATCH), sweep, LogitDiff(), on="clean", engine=engine)
    left = found["value"].values[0, :, 0] / float(found["clean"][0, 0])
    np.testing.assert_allclose(left[[0, 1, 3]], 1, atol=1e-4)
    assert abs(left[2]) < 0.35
