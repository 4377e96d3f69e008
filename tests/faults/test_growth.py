"""Promise: memory does not grow with what is over: cells, clicks, models that were let go.

Resident memory after a first part, which fills caches, against that at the end. Tolerances are
what allocators keep, far under what a leak of the thing in question would take.
"""

import gc

import psutil
import pytest

import tlkit as tk
from tlkit.app.explore import first_state
from tlkit.app.kernel import Kernel
from tlkit.checks.samples import sample_pairs
from tlkit.engine.session import Session
from tlkit.models.bridge import Parts
from tlkit.models.load import HookedTransformer


def megabytes():
    gc.collect()
    return psutil.Process().memory_info().rss / 1e6


def grown(work, first, more):
    """How many megabytes the work takes more after `more` further turns."""
    for _ in range(first):
        work()
    before = megabytes()
    for _ in range(more):
        work()
    growth = megabytes() - before
    print(f"{growth:+.1f} MB over {more} turns")
    return growth


def cells(model):
    """About a hundred cells of a session."""
    prompts = sample_pairs(Parts(model), seed=0)
    session = Session(model, prompts, tk.LogitDiff())
    patches = [
        [tk.Patch(tk.Site("resid_pre", layer=layer, pos=pos))]
        for layer in range(3) for pos in range(14)
    ] * 3  # fmt: skip
    return lambda: session.several(patches[:100])


def clicks(model):
    """One click of the explorer, with everything that follows it."""
    texts = ["When Mary and John went to the store, John gave a drink to"]
    others = [texts[0].replace("John gave", "Mary gave")]
    prompts = tk.Prompts.from_pairs(model, texts, others, ["Mary"], ["John"])
    kernel = Kernel(model, first_state(model, prompts, "resid_pre", None, "denoise", 0))
    count = iter(range(10_000))

    def click():
        number = next(count)
        message = {"type": "pick", "id": number, "layer": number % 3, "at": number % 12}
        assert kernel.answer(message)["kind"] != "error"
        for _ in range(3):
            assert kernel.answer({"type": "more", "id": number})["kind"] != "error"

    return click


def loads():
    model = HookedTransformer.from_pretrained("tiny:llama3", device="cpu")
    tk.run(
        model, sample_pairs(Parts(model), seed=0),
        tk.Sweep(tk.Patch(tk.Site("z")), layer=[0]), tk.LogitDiff(),
    )  # fmt: skip


def test_a_few_hundred_cells_and_clicks_take_no_more_memory(tiny_bridge):
    assert grown(cells(tiny_bridge("llama3")), 1, 3) < 40
    assert grown(clicks(tiny_bridge("llama3")), 5, 20) < 40


@pytest.mark.campaign
def test_2_000_cells_take_no_more_memory(tiny_bridge):
    assert grown(cells(tiny_bridge("llama3")), 3, 20) < 30


@pytest.mark.campaign
def test_200_clicks_take_no_more_memory(tiny_bridge):
    assert grown(clicks(tiny_bridge("llama3")), 30, 200) < 30


@pytest.mark.campaign
def test_50_models_that_were_let_go_take_no_memory():
    assert grown(loads, 5, 50) < 50
