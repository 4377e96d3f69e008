"""Single cells against `tk.run`, and that what is kept is not made again.

Faults to plant: key what is kept by component alone; forget to copy the baseline; leave a missing
cell at the baseline.
"""

import numpy as np
import pytest

from tlkit.engine import packed_group
from tlkit.engine.run import run
from tlkit.engine.session import Session
from tlkit.errors import SpecError
from tlkit.prompts.prompts import Prompts
from tlkit.spec.attention import Knockout
from tlkit.spec.interventions import Ablate, Patch
from tlkit.spec.metrics import KL, AnswerProb, LogitDiff
from tlkit.spec.sites import Site
from tlkit.spec.sweeps import Condition, Sweep


def cells(source):
    """Patches from a run, and other interventions."""
    sites = {
        "stream": Site("resid_pre", layer=1, pos=8),
        "head": Site("z", layer=2, head=1),
        "same head, other layer": Site("z", layer=0, head=1),
        "pattern": Site("pattern", layer=1, head=3),
        "keys": Site("k", layer=1, head=0, pos=7),
        "embedding": Site("embed", pos=(3, 8)),
        "end": Site("resid_post", layer=1, pos=8),
    }
    found = {name: [Patch(site, source=source)] for name, site in sites.items()}
    return {
        **found,
        "cut": [Knockout(keys=(1, 2), layers=(0, 1))],
        "mean": [Ablate(Site("mlp_out", layer=1), value="mean")],
        "two": [Ablate(Site("attn_out", layer=0, pos=4)), *found["end"]],
    }


CELLS = cells("clean")


@pytest.fixture
def counted(monkeypatch):
    """The model's passes: (sequences, sites that are kept)."""
    calls = []
    record = packed_group.record

    def counting(parts, ids, wants=None, **options):
        calls.append((tuple(map(tuple, ids)), frozenset(wants or ())))
        return record(parts, ids, wants, **options)

    monkeypatch.setattr(packed_group, "record", counting)
    return calls


@pytest.mark.parametrize(("on", "source"), [("corrupted", "clean"), ("clean", "corrupted")])
@pytest.mark.parametrize("family", ["llama3", "gptj"])
def test_a_cell_is_what_run_gives(tiny_bridge, ragged, family, on, source):
    model, metrics = tiny_bridge(family), [LogitDiff(), KL(), AnswerProb(log=True)]
    prompts = ragged(model)
    session, asked = Session(model, prompts, metrics, on=on), cells(source)
    sweep = Sweep.over([Condition(name, tuple(cell)) for name, cell in asked.items()])
    whole = run(model, prompts, sweep, metrics, on=on)
    for name, cell in asked.items():
        own = whole["value"].sel(condition=name).transpose("metric", "example").values
        np.testing.assert_allclose(session.values(cell), own, atol=1e-5, err_msg=name)
    for side in ("clean", "corrupted"):
        np.testing.assert_allclose(session.baseline(side), whole[side], atol=1e-5)
    np.testing.assert_array_equal(session.baseline(), session.baseline(on))
    moved = abs(whole["effect"]).max("example").sel(metric="logit_diff")
    assert float(moved.min()) > 1e-4


def test_runs_are_made_once_and_kept(tiny_bridge, ragged, counted):
    model = tiny_bridge("llama3")
    prompts = ragged(model)
    session = Session(model, prompts, LogitDiff())
    first = session.values(CELLS["head"])
    assert [ids for ids, _ in counted] == [prompts.corrupted, prompts.clean]
    again = session.values(CELLS["head"])
    session.values(CELLS["same head, other layer"])
    session.values([Patch(Site("z", layer=1, pos=8))])
    session.values(CELLS["cut"])
    session.baseline("clean")
    assert len(counted) == 2
    np.testing.assert_array_equal(first, again)
    session.values(CELLS["keys"])  # another component: the clean run once more
    session.values([Patch(Site("k", layer=2, pos=8))])
    assert [ids for ids, _ in counted[2:]] == [prompts.clean]


def test_an_answer_is_the_callers_own(tiny_bridge, ragged):
    model = tiny_bridge("llama3")
    session = Session(model, ragged(model), LogitDiff())
    before = session.baseline().copy()
    idle = session.values([Patch(Site("resid_pre", layer=0, pos=2))])  # equal tokens: free
    np.testing.assert_array_equal(idle[:, [0, 2]], before[:, [0, 2]])
    idle[:] = 99
    np.testing.assert_array_equal(session.values([]), before)


def test_the_other_run_can_be_asked_for_first(tiny_bridge, ragged):
    model = tiny_bridge("llama3")
    prompts = ragged(model)
    clean = Prompts.from_tokens(prompts.clean, None, prompts.answers, prompts.wrong_answers)
    np.testing.assert_allclose(
        Session(model, prompts, LogitDiff()).baseline("clean"),
        Session(model, clean, LogitDiff()).baseline(),
        atol=1e-5,
    )


def test_what_an_example_lacks_is_nan(tiny_bridge, gapped):
    model = tiny_bridge("llama3")
    session = Session(model, gapped, [LogitDiff(), KL()])
    found = session.values([Patch(Site("resid_pre", layer=1, pos=6))])
    # The pairs have 7, 8 and 5 corrupted tokens; position 6 belongs to the common end.
    assert np.isnan(found).tolist() == [[False, False, True]] * 2
    spans = {"subject": [(1, 3), None, (2, 3)]}
    rows = [list(row) for row in gapped.clean], [list(row) for row in gapped.corrupted]
    answers = [[7], [8], [9]], [[17], [18], [19]]
    named = Prompts.from_tokens(*rows, *answers, spans=spans, corrupted_spans=spans)
    cut = Session(model, named, LogitDiff()).values([Knockout(keys="subject")])
    assert np.isnan(cut).tolist() == [[False, True, False]]


def test_what_cannot_be_is_refused(tiny_bridge, ragged):
    model = tiny_bridge("llama3")
    with pytest.raises(SpecError, match="needs the packed engine: its blocks cannot be called"):
        Session(tiny_bridge("falcon"), ragged(model), LogitDiff())
    alone = Prompts.from_tokens([[0, 5, 6]])
    with pytest.raises(SpecError, match="have only clean: make them with"):
        Session(model, alone, KL(), on="corrupted")
    session = Session(model, alone, KL())
    with pytest.raises(SpecError, match="wants the 'corrupted' run"):
        session.values([Patch(Site("z", layer=0), source="corrupted")])
    with pytest.raises(SpecError, match="layers 0 to 2"):
        session.values([Ablate(Site("z", layer=3))])
    with pytest.raises(SpecError, match="no site 'resid_mid'"):
        parallel = tiny_bridge("gptj")
        Session(parallel, alone, KL()).values([Ablate(Site("resid_mid", layer=1))])
    with pytest.raises(SpecError, match="There are no prompts to run"):
        Session(model, Prompts(clean=()), KL())


def test_several_cells_are_what_each_is_alone(tiny_bridge, ragged):
    model, metrics = tiny_bridge("llama3"), [LogitDiff(), KL()]
    session = Session(model, ragged(model), metrics)
    missing, idle = [Patch(Site("z", layer=0, pos=11))], [Patch(Site("resid_pre", layer=0, pos=0))]
    cells = [*CELLS.values(), missing, idle, []]
    found = session.several(cells)
    assert found.shape == (len(cells), 2, 3)
    for cell, own in zip(cells, found, strict=True):
        np.testing.assert_allclose(own, session.values(cell), atol=1e-5)
    assert np.isnan(found).sum() == 2  # the second pair has 9 tokens
