"""Patching maps against sweeps written out, and against what patching must do in every model.

Faults to plant: swap the source and the changed run; take the corrupted length for the clean one;
count query heads for keys and values.
"""

import json

import numpy as np
import pytest

import tlkit as tk
from tlkit.errors import SpecError
from tlkit.prompts.prompts import Prompts
from tlkit.spec.interventions import Patch
from tlkit.spec.metrics import LogitDiff
from tlkit.spec.sites import Site
from tlkit.spec.sweeps import Sweep
from tlkit.studies import patching

TEXTS = ["When Mary and John went to the store, John gave a drink to", "The capital of Italy is"]
OTHERS = ["When Mary and John went to the store, Mary gave a drink to", "The capital of France is"]
LENGTHS, FIRST = (15, 6), (10, 4)


@pytest.fixture(scope="module")
def prompts(tiny_bridge):
    """Pairs of 15 and 6 tokens that differ at positions 10 and 4."""
    model = tiny_bridge("llama3")
    return Prompts.from_pairs(model, TEXTS, OTHERS, ["Mary", "Rome"], ["John", "Paris"])


@pytest.mark.parametrize(
    ("site", "by", "axes"),
    [
        ("resid_pre", None, {"layer": range(3), "pos": range(15)}),
        ("mlp_post", "positions", {"layer": range(3), "pos": range(15)}),
        ("embed", None, {"pos": range(15)}),
        ("z", None, {"layer": range(3), "head": range(4)}),
        ("z", "positions", {"layer": range(3), "pos": range(15)}),
        ("k", None, {"layer": range(3), "head": range(2)}),
        ("pattern", None, {"layer": range(3), "head": range(4)}),
    ],
)
@pytest.mark.parametrize("on", ["corrupted", "clean"])
def test_a_map_is_the_sweep_written_out(tiny_bridge, prompts, site, by, axes, on):
    model = tiny_bridge("llama3")
    found = patching.run(model, prompts, site, by=by, on=on)
    source = "clean" if on == "corrupted" else "corrupted"
    written = Sweep(Patch(Site(site), source=source), **axes)
    wanted = tk.run(model, prompts, written, LogitDiff(), on=on)
    for name in ("value", "effect", "recovered", "base"):
        np.testing.assert_array_equal(found[name], wanted[name])
    dims = {"head": "kv_head"} if site == "k" else {}
    assert found["value"].dims == ("metric", *(dims.get(a, a) for a in axes), "example")
    np.testing.assert_array_equal(found["base"], found[on])
    assert (found.attrs["study"], found.attrs["site"]) == ("patching", site)
    assert json.loads(found.attrs["spec"])["template"]["Patch"]["source"] == source
    assert float(abs(found["effect"]).max()) > 1e-3


def test_whole_streams_carry_the_whole_answer(tiny_bridge, prompts):
    found = patching.run(tiny_bridge("llama3"), prompts, "resid_post")
    recovered = found["recovered"].isel(metric=0)
    for example, (length, first) in enumerate(zip(LENGTHS, FIRST, strict=True)):
        one = recovered.isel(example=example)
        # The last block's output at the end is what the answer is read from.
        assert float(one.sel(layer=2, pos=length - 1)) == pytest.approx(1, abs=1e-4)
        # Elsewhere nothing reads it any more; left of the difference nothing differs.
        np.testing.assert_allclose(one.sel(layer=2)[: length - 1], 0, atol=1e-4)
        np.testing.assert_array_equal(found["effect"].isel(metric=0, example=example)[:, :first], 0)
        assert np.isnan(one[:, length:]).all()
    entering = patching.run(tiny_bridge("llama3"), prompts, "resid_pre")["recovered"]
    for example, first in enumerate(FIRST):  # the one token that differs, before any block
        at = entering.isel(metric=0, layer=0, pos=first, example=example)
        assert float(at) == pytest.approx(1, abs=1e-4)


def test_noising_and_denoising_meet_at_the_one_token(tiny_bridge, prompts):
    """Both put the other prompt's whole difference in: the other run is what comes out."""
    for on, other in (("corrupted", "clean"), ("clean", "corrupted")):
        found = patching.run(tiny_bridge("llama3"), prompts, "embed", on=on)
        for example, first in enumerate(FIRST):
            value = found["value"].isel(metric=0, pos=first, example=example)
            wanted = found[other].isel(metric=0, example=example)
            assert float(value) == pytest.approx(float(wanted), abs=1e-5)


def test_the_clean_length_counts_where_the_clean_run_is_changed(tiny_bridge, gapped_pair):
    model = tiny_bridge("llama3")
    for on, length in (("clean", 6), ("corrupted", 14)):
        assert patching.sweep(model, gapped_pair, on=on).axes["pos"] == tuple(range(length))


@pytest.fixture
def gapped_pair(tiny_bridge):
    """Six tokens against fourteen."""
    texts = ["The capital of France is"], ["The capital of Bulgaria is"]
    return Prompts.from_pairs(tiny_bridge("llama3"), *texts, ["Paris"], ["Rome"])


def test_a_store_holds_what_was_returned(tiny_bridge, prompts, tmp_path):
    store = tmp_path / "map.zarr"
    returned = patching.run(tiny_bridge("llama3"), prompts, "z", store=store, seed=4, audit=0.25)
    kept = tk.open(store)
    np.testing.assert_array_equal(kept["value"], returned["value"])
    for name in ("site", "study", "seed", "audit_difference", "spec", "weight_hash"):
        assert kept.attrs[name] == returned.attrs[name]
    assert (kept.attrs["site"], kept.attrs["seed"], kept.attrs["audit_jobs"]) == ("z", 4, 6)


@pytest.mark.parametrize("store", ["map.csv", "nowhere/map.zarr"])
def test_a_store_that_cannot_be_is_told_before_the_run(
    tiny_bridge, prompts, tmp_path, monkeypatch, store
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError, match=r"must end in \.zarr|the folder nowhere does not exist"):
        patching.run(tiny_bridge("llama3"), prompts, store=store, progress=pytest.fail)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_mapped_is_refused(tiny_bridge, prompts):
    model = tiny_bridge("llama3")
    with pytest.raises(SpecError, match="cannot be mapped by 'heads', only by 'positions'"):
        patching.run(model, prompts, "resid_pre", by="heads")
    single = Prompts.from_texts(model, TEXTS, ["Mary", "Rome"], ["John", "Paris"])
    with pytest.raises(SpecError, match="Patching needs pairs"):
        patching.run(model, single)
