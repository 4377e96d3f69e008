"""What a plan counts, against counts made by hand, and against what the packed engine then does.

Faults to plant: forget the base and source runs; count a layer's block once too often; count free
cells; take the corrupted length for the clean one.
"""

import contextlib

import pytest
import torch

from tlkit.engine import planning
from tlkit.engine.planning import Plan, plan
from tlkit.engine.route import route_of
from tlkit.engine.run import run
from tlkit.errors import SpecError
from tlkit.models.bridge import Parts
from tlkit.prompts.prompts import Prompts
from tlkit.spec.attention import Knockout
from tlkit.spec.interventions import Ablate, Patch
from tlkit.spec.metrics import KL, LogitDiff
from tlkit.spec.sites import Site
from tlkit.spec.sweeps import Condition, Sweep

LAYERS = range(3)
LENGTH = 6
ONCE = 2 * LENGTH * 3  # the base and the source run
RISING = 4 + 3 + 2 + 1  # tokens right of and at positions 2, 3, 4 and 5


@pytest.fixture(scope="module")
def pair():
    """Six tokens that differ at position 2 alone."""
    return Prompts.from_tokens([[0, 20, 31, 40, 50, 60]], [[0, 20, 30, 40, 50, 60]], [[70]], [[71]])


@contextlib.contextmanager
def no_forward():
    """Whatever module is called, fail."""

    def refuse(module, args):
        raise AssertionError(f"{type(module).__name__} was run")

    handle = torch.nn.modules.module.register_module_forward_pre_hook(refuse)
    try:
        yield
    finally:
        handle.remove()


def by_position(component):
    return Sweep(Patch(Site(component)), layer=LAYERS, pos=range(LENGTH))


# Each: sweep, jobs, free cells, token-layers of the cells.
CASES = {
    # Left of position 2 nothing changes, and in layer 0 neither where the tokens are equal. A
    # patch into layer l changes everything to its right, from block l on.
    "resid_pre": (by_position("resid_pre"), 1 + 4 + 4, 9, 4 * 3 + RISING * (2 + 1)),
    # The block's own output is patched, so that layer 2's changes no block at all.
    "resid_post": (by_position("resid_post"), 12, 6, RISING * (2 + 1 + 0)),
    # Within its block a patch of attention's output changes one token, above it all to the right.
    "attn_out": (by_position("attn_out"), 12, 6, 3 * 4 + RISING * (2 + 1 + 0)),
    # Keys of layer 0 with equal tokens are equal; a changed key is read by all to its right.
    "k": (by_position("k"), 9, 9, 4 * 3 + RISING * (2 + 1)),
    # A head's output, at the four positions that can differ.
    "z by head": (
        Sweep(Patch(Site("z")), layer=LAYERS, head=range(4)), 12, 0, 4 * (4 + 8 + 12),
    ),
    # Nothing proves an ablation idle: all positions, everywhere.
    "ablated": (
        Sweep(Ablate(Site("mlp_out")), layer=LAYERS, pos=range(LENGTH)), 18, 0,
        3 * 6 + (6 + 5 + 4 + 3 + 2 + 1) * (2 + 1 + 0),
    ),
    # Edges of queries 2 to 5 change those tokens only, in the layer and above.
    "knockout": (Sweep(Knockout(keys=1), layers=LAYERS), 3, 0, 4 * (3 + 2 + 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_counts_are_those_made_by_hand(tiny_bridge, pair, name):
    model, (sweep, jobs, free, token_layers) = tiny_bridge("llama3"), CASES[name]
    route_of(Parts(model))  # found by trying, once in a model's life
    with no_forward():
        found = plan(model, pair, sweep, LogitDiff())
    cells = len(sweep.conditions())
    assert (found.cells, found.examples, found.missing) == (cells, 1, 0)
    assert (found.jobs, found.free) == (jobs, free)
    assert found.token_layers == token_layers + ONCE
    assert found.plain_token_layers == cells * LENGTH * 3
    assert found.engine == "packed"


def test_the_engine_does_what_was_planned(tiny_bridge, ragged):
    model = tiny_bridge("mistral")
    prompts, sweep = ragged(model), Sweep(Patch(Site("v")), layer=LAYERS, head=range(2))
    told = []
    run(model, prompts, sweep, LogitDiff(), progress=lambda *done: told.append(done))
    once = 2 * (12 + 9 + 14) * 3
    found = plan(model, prompts, sweep, LogitDiff())
    assert told[-1] == (found.token_layers - once, found.token_layers - once)
    # Differing from 3, 0 and 7 on: 9, 9 and 7 tokens in 3, 2 and 1 blocks, for both kv heads.
    assert found.token_layers - once == 2 * (9 + 9 + 7) * (3 + 2 + 1)


def test_the_reference_engine_runs_every_token_of_every_job(tiny_bridge, pair):
    found = plan(tiny_bridge("llama3"), pair, by_position("resid_pre"), KL(), engine="reference")
    assert (found.engine, found.jobs) == ("reference", 9)
    assert found.token_layers == 9 * LENGTH * 3 + ONCE
    fallen_back = plan(tiny_bridge("falcon"), pair, by_position("resid_pre"), KL())
    assert (fallen_back.engine, fallen_back.token_layers) == ("reference", found.token_layers)


def test_cells_that_an_example_lacks_are_missing(tiny_bridge, gapped):
    # Corrupted 7, 8 and 5 tokens; of the first, 1 and 2 have no counterpart; of the second, 1-4.
    sweep = Sweep(Patch(Site("attn_out")), layer=LAYERS, pos=range(8))
    found = plan(tiny_bridge("llama3"), gapped, sweep, LogitDiff())
    missing = 3 * ((2 + 1) + 4 + 3)
    free = 3 * (1 + 1 + 2)  # BOS, and one more token of the last pair
    assert (found.missing, found.free) == (missing, free)
    assert found.jobs == 3 * 8 * 3 - missing - free


def test_given_interventions_are_a_run_of_their_own(tiny_bridge, pair):
    sweep = Sweep(
        Ablate(Site("z")), layer=[2], head=[0], given=[Ablate(Site("z", layer=1, head=1))]
    )
    found = plan(tiny_bridge("llama3"), pair, sweep, LogitDiff())
    # The cell: six tokens that enter at block 1; so does the run with the given one alone.
    assert (found.cells, found.jobs, found.token_layers) == (1, 2, 2 * 6 * 2 + ONCE)


def test_operations_of_weights_attention_and_unembedding(tiny_bridge, pair, monkeypatch):
    monkeypatch.setattr(planning, "flops_per_second", lambda parts: 1e6)
    # Width 64; four heads of 16, of which two for keys and values; a gated MLP of 128.
    weights = 64 * 64 + 2 * 64 * 32 + 64 * 64 + 3 * 64 * 128
    per_token = 2 * weights + 4 * LENGTH * 4 * 16
    blocks = (4 * 3 + RISING * 3 + ONCE) * per_token
    model, sweep = tiny_bridge("llama3"), by_position("resid_pre")
    narrow = plan(model, pair, sweep, LogitDiff())
    assert narrow.flops == blocks + 2 * 9 * 64 * 2  # nine jobs, two rows of the vocabulary
    assert narrow.seconds == narrow.flops / 1e6
    wide = plan(model, pair, sweep, [LogitDiff(), KL()])
    assert wide.flops - narrow.flops == 2 * 9 * 64 * 512


def test_a_budget_bounds_what_is_recorded(tiny_bridge, pair):
    model, sweep = tiny_bridge("llama3"), by_position("resid_pre")
    whole = plan(model, pair, sweep, LogitDiff())
    # Float32: five streams of 64 and, per layer, keys and values of two heads of 16; twice.
    recorded = 2 * LENGTH * 4 * (5 * 64 + 3 * 2 * 2 * 16)
    lanes = 3 * 4 * 64 * (4 + 2 * RISING)
    assert whole.memory == recorded + lanes
    assert plan(model, pair, sweep, LogitDiff(), budget="2kB").memory == 1000 + lanes
    assert plan(model, pair, sweep, LogitDiff(), budget=2000).memory == 1000 + lanes


def test_a_plan_reads_well_and_is_plain_data():
    made = Plan(1200, 8, 9000, 10, 590, 30000, 90000, 2e12, 3 * 2**20, 12.34, "packed")
    assert str(made) == (
        "1,200 cells on 8 prompts: 590 to run, 9,000 free, 10 absent.\n"
        "30,000 token-layers (3.0 times fewer than one full pass per cell), 2 TFLOP.\n"
        "About 12.3 s with the packed engine, and at most 3 MiB besides the weights."
    )
    assert made.as_dict()["jobs"] == 590
    assert Plan(**made.as_dict()) == made


def test_what_cannot_be_run_cannot_be_planned(tiny_bridge, pair):
    model = tiny_bridge("llama3")
    with pytest.raises(SpecError, match="layers 0 to 2"):
        plan(model, pair, Sweep(Ablate(Site("z")), layer=[3]), LogitDiff())
    with pytest.raises(SpecError, match="A budget is a number of bytes"):
        plan(model, pair, by_position("resid_pre"), LogitDiff(), budget="lots")
    with pytest.raises(SpecError, match="no site 'resid_mid'"):
        cell = Condition("mid", (Ablate(Site("resid_mid")),))
        plan(tiny_bridge("gptj"), pair, Sweep.over([cell]), LogitDiff())
