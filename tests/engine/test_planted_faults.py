"""Faults planted in the engine, one at a time: the comparison that guards against each must fail.

`test_twins.py`, `test_algebra.py` and `test_transformer_lens.py` make the same comparisons on the
code as it is.
"""

import dataclasses

import numpy as np
import pytest
import torch

import tlkit.engine.lanes
import tlkit.engine.packed
import tlkit.engine.packed_attention
import tlkit.engine.record
from tlkit.checks.twins import compare
from tlkit.engine.edits import Compiler
from tlkit.engine.packed import Packed
from tlkit.engine.packed_edits import Editor
from tlkit.engine.run import run
from tlkit.engine.sources import Sources
from tlkit.prompts.prompts import Prompts
from tlkit.prompts.spans import Span
from tlkit.spec.attention import Knockout
from tlkit.spec.interventions import Patch
from tlkit.spec.metrics import LogitDiff
from tlkit.spec.sites import Site
from tlkit.spec.sweeps import Sweep

FAR = 1e-4
"""Ten times what the engines may differ by."""


@pytest.fixture(scope="module")
def model(tiny_bridge):
    return tiny_bridge("llama3")


def gap(model, prompts, sweep):
    return compare(model, prompts, sweep, LogitDiff()).gap


def streams():
    return Sweep(Patch(Site("resid_pre")), layer=range(3), pos=range(14))


def heads():
    return Sweep(Patch(Site("z")), layer=range(3), head=range(4))


def cuts():
    return Sweep(Knockout(keys=(1, 2)), layers=range(3))


def test_nothing_planted(model, ragged):
    for sweep in (streams(), heads(), cuts()):
        assert gap(model, ragged(model), sweep) < 1e-5


def test_head_index_ignored(model, ragged, monkeypatch):
    plain = Editor.edit_rows

    def edit_rows(self, component, value, view):
        several = view.edits.get(component, [])
        view.edits[component] = [(i, dataclasses.replace(e, head=0)) for i, e in several]
        plain(self, component, value, view)

    monkeypatch.setattr(Editor, "edit_rows", edit_rows)
    assert gap(model, ragged(model), heads()) > FAR


def test_mask_off_by_one(model, ragged, monkeypatch):
    plain = tlkit.engine.packed_attention._bias

    def shifted(view, layer, dtype, base):
        bias = plain(view, layer, dtype, base).clone()
        bias[..., 1:] = plain(view, layer, dtype, base)[..., :-1]  # one key too many
        return bias

    monkeypatch.setattr(tlkit.engine.packed_attention, "_bias", shifted)
    assert gap(model, ragged(model), streams()) > FAR


def test_copy_edited_instead_of_the_activation(model, ragged, monkeypatch):
    plain = Editor.edit_rows

    def edit_rows(self, component, value, view):
        plain(self, component, value.clone(), view)

    monkeypatch.setattr(Editor, "edit_rows", edit_rows)
    assert gap(model, ragged(model), heads()) > FAR


def test_another_examples_keys(model, ragged, monkeypatch):
    plain = tlkit.engine.lanes.make_view

    def make_view(*args, **kwargs):
        view = plain(*args, **kwargs)
        view.example = torch.zeros_like(view.example)
        return view

    monkeypatch.setattr(tlkit.engine.packed, "make_view", make_view)
    assert gap(model, ragged(model), streams()) > FAR


def test_position_shifted(model, ragged, monkeypatch):
    plain = Sources.get

    def get(self, edit, example):
        early = tuple(max(0, p - 1) for p in edit.sources)
        return plain(self, dataclasses.replace(edit, sources=early), example)

    monkeypatch.setattr(Sources, "get", get)
    # Both engines read sources, so the twin cannot tell; a whole-stream patch can.
    prompts = ragged(model)
    whole = Sweep(Patch(Site("resid_pre")), layer=range(1, 3))
    recovered = run(model, prompts, whole, LogitDiff())["recovered"].values
    assert np.abs(recovered - 1).max() > 0.01


def test_rotary_position_shifted(model, ragged, monkeypatch):
    plain = Packed._block

    def block(self, view, layer, hidden):
        view.position, kept = (view.position - 1).clamp_min(0), view.position
        out = plain(self, view, layer, hidden)
        view.position = kept
        return out

    monkeypatch.setattr(Packed, "_block", block)
    assert gap(model, ragged(model), streams()) > FAR


def test_stale_base_run(model, ragged, monkeypatch):
    plain = tlkit.engine.packed.Packed._enter

    def enter(self, begin, end, layer):
        plain(self, begin, end, max(0, layer - 1))

    monkeypatch.setattr(Packed, "_enter", enter)
    assert gap(model, ragged(model), streams()) > FAR


def test_padding_ignored(model, ragged, monkeypatch):
    """A metric that reads the padded end of a shorter prompt reads another token's logits."""
    plain = tlkit.engine.record.padded

    def padded_left(ids, device):
        tokens, mask = plain(ids, device)
        for row, one in enumerate(ids):
            tokens[row] = tokens[row].roll(tokens.shape[1] - len(one))
        return tokens, torch.ones_like(mask)

    monkeypatch.setattr(tlkit.engine.record, "padded", padded_left)
    assert gap(model, ragged(model), heads()) > FAR


def test_free_cell_that_is_not_free(model, ragged, monkeypatch):
    monkeypatch.setattr(Compiler, "_is_early", lambda self, one, example: True)
    found = run(model, ragged(model), streams(), LogitDiff())
    assert np.abs(found["effect"].values).max() == 0  # the fault hides every effect ...
    monkeypatch.undo()
    whole = run(model, ragged(model), streams(), LogitDiff(), engine="reference")
    assert np.nanmax(np.abs(whole["effect"].values)) > 0.1  # ... that the comparison would see


def test_cut_that_never_lands(model, ragged, monkeypatch):
    monkeypatch.setattr(Editor, "edit_pattern", lambda self, pattern, view: None)
    assert gap(model, ragged(model), cuts()) > FAR


def test_wrong_span(model):
    """A span one token early patches another token; a patch of the only differing one recovers."""
    clean, corrupted = [5, 60, 61, 62, 9, 10], [5, 60, 71, 62, 9, 10]

    def recovered(span):
        prompts = Prompts.from_tokens(
            [clean], [corrupted], [[7]], [[17]], spans={"subject": [span]},
            corrupted_spans={"subject": [span]},
        )  # fmt: skip
        sweep = Sweep(Patch(Site("embed", pos="subject")))
        return float(run(model, prompts, sweep, LogitDiff())["recovered"].item())

    assert abs(recovered(Span(2, 3)) - 1) < 1e-4
    assert abs(recovered(Span(1, 2))) < 1e-4


def test_second_bos(tiny_bridge):
    """One BOS more moves every position, so the logits are no longer the model's own."""
    model = tiny_bridge("llama3")
    text = "The key to the cabinets"
    ids = model.tokenizer(text)["input_ids"]
    prompts = Prompts.from_texts(model, [text])
    assert list(prompts.clean[0]) == list(ids)
    with torch.no_grad():
        own = model(torch.tensor([ids]))[0, -1]
        doubled = model(torch.tensor([[ids[0], *ids]]))[0, -1]
    assert float((own - doubled).abs().max()) > FAR
