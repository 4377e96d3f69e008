"""Messages in, replies out: what changes the screen, what is refused, what is dropped.

Faults to plant: keep the old map's pieces; put a refused state on the screen; forget the history;
hold the kernel after closing.
"""

import gc
import threading
import weakref

import pytest

from tlkit.app.explore import explore
from tlkit.errors import SpecError
from tlkit.prompts.prompts import Prompts

CLEAN = "When Mary and John went to the store, John gave a drink to"


def test_the_frame_says_which_tokens_differ(talk):
    say = talk()
    frame = say("start")["frame"]
    assert frame["sides"] == {"base": "corrupted", "source": "clean"}
    own, other = frame["tokens"]["base"], frame["tokens"]["source"]
    assert (own[10], other[10]) == (" Mary", " John")
    assert [i for i, differs in enumerate(frame["tokens"]["differs"]) if differs] == [10]
    assert frame["choices"]["example"][0] == CLEAN
    assert frame["texts"] == {
        "clean": CLEAN, "corrupted": CLEAN.replace(", John", ", Mary"),
        "answer": " Mary", "wrong_answer": " John",
    }  # fmt: skip
    odd = say("show", example=1)["frame"]
    assert "</script><b>\n\U0001f600" in odd["choices"]["example"][1]
    assert "↵" in odd["tokens"]["base"]


def test_undo_goes_back_step_by_step_and_reset_can_be_undone(talk):
    say = talk()
    assert say("start")["undo"] is False
    one = say("pick", layer=1, at=10)
    assert one["undo"] is True
    say("pick", layer=0, at=12, add=True)
    say("show", site="z")
    assert say("undo")["frame"]["chosen"]["site"] == "resid_pre"
    back = say("undo")
    assert back["kind"] == "picked"
    assert back["picked"]["value"] == one["picked"]["value"]
    gone = say("reset")
    assert gone["picked"] is None
    assert say("undo")["picked"]["value"] == one["picked"]["value"]
    last = say("undo")
    assert (last["picked"], last["undo"]) == (None, False)
    assert say("undo") == {
        "kind": "error", "text": "There is nothing to undo.", "re": say.count, "more": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "fields", "words"),
    [
        ("nonsense", {}, "knows no message 'nonsense'"),
        ("pick", {"layer": 3, "at": 0}, "There is no layer 3 here; there are 0 to 2."),
        ("pick", {"layer": 0, "at": 99}, "There is no at 99 here"),
        ("pick", {"layer": True, "at": 0}, "There is no layer True"),
        ("cut", {"query": 3, "key": 5}, "Position 3 cannot attend to 5, which comes after it."),
        ("ablate", {"layer": 0, "head": 4}, "There is no head 4 here; there are 0 to 3."),
        ("show", {"site": "embed"}, "There is no site 'embed'; there are resid_pre"),
        ("show", {"metric": ["kl"]}, "There is no metric"),
        ("show", {"example": 2}, "There is no example 2; there are 0, 1."),
        ("show", {"nonsense": 2}, "The explorer has no 'nonsense'"),
        ("edit", {"clean": "The cat", "corrupted": "The cat", "answer": "a"}, "nothing differs"),
        ("edit", {"clean": "", "corrupted": "The cat", "answer": "a"}, "empty"),
        ("edit", {"clean": "The cat", "corrupted": "The dog", "answer": "abcdef",
                  "wrong_answer": "The"}, "LogitDiff needs answers of one token"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line_and_changes_nothing(talk, kind, fields, words):
    say = talk()
    say("start")
    say("pick", layer=1, at=10)
    state = say.kernel.state
    reply = say(kind, **fields)
    assert reply["kind"] == "error"
    assert words in reply["text"]
    assert "\n" not in reply["text"]
    assert say.kernel.state is state
    assert say("undo")["picked"] is None  # the refused step is none of the history


def test_a_site_that_a_model_lacks_is_neither_offered_nor_taken(talk):
    say = talk("gptj")
    assert "resid_mid" not in say("start")["frame"]["choices"]["site"]
    assert "has no site 'resid_mid'" in say("show", site="resid_mid")["text"]


def test_a_fault_in_the_kernel_is_a_reply(talk, monkeypatch):
    say = talk()
    say("start")
    broken = say.kernel.bench(say.kernel.state)
    monkeypatch.setattr(broken, "cells", lambda changes: 1 / 0)
    assert [say("more")["exact"] for _ in range(2)] == [True, False]
    assert say("more")["text"] == "ZeroDivisionError: division by zero"
    assert say("more") == {"kind": "idle", "re": say.count, "more": False}


def test_a_newer_map_cancels_the_older(talk):
    say = talk()
    say("start")
    say("more")
    say("more")
    frame = say("show", site="z")["frame"]
    pieces = say.rest()
    assert all(at < frame["columns"] == 4 for piece in pieces for _, at, _ in piece["cells"])
    exact = [tuple(cell[:2]) for piece in pieces if piece["exact"] for cell in piece["cells"]]
    assert len(exact) == len(set(exact)) == 12


def test_what_is_known_of_a_map_is_shown_at_once(talk):
    say = talk()
    say("start")
    done = say.rest()
    say("show", site="z")
    say("undo")
    again = say.rest()
    assert len(again) == 1
    assert again[0]["exact"]
    known = {tuple(cell) for piece in done if piece["exact"] for cell in piece["cells"]}
    assert {tuple(cell) for cell in again[0]["cells"]} == known


def test_a_click_comes_before_the_map(talk):
    say = talk()
    say("start")
    say("more")
    say("pick", layer=1, at=10)
    assert [say("more")["kind"] for _ in range(3)] == ["attention", "text", "text"]
    say("pick", layer=1, at=12)  # a newer click drops what is left of the older
    pieces = say.rest()
    assert [piece["query"] for piece in pieces if piece["kind"] == "attention"] == [12]
    assert pieces[-1]["kind"] == "map"


def test_an_edited_pair_has_a_map_of_its_own(talk):
    say = talk()
    say("start")
    say("pick", layer=1, at=10)
    reply = say("edit", clean="The cat sat in Rome", corrupted="The dog sat in Rome",
                answer="yes", wrong_answer="no")  # fmt: skip
    assert reply["picked"] is None
    assert reply["frame"]["tokens"]["base"][:4] == ["<bos>", "The", " dog", " sat"]
    assert say.kernel.state.prompts.clean_texts == ("The cat sat in Rome",)
    assert reply["frame"]["choices"]["example"][0] == "The cat sat in Rome"
    assert say("undo")["frame"]["texts"]["clean"] == CLEAN


def test_two_kernels_on_one_model_do_not_disturb_each_other(tiny_bridge, talk_about, pairs_of):
    model = tiny_bridge("llama3")
    alone = talk_about(model, pairs_of(model), site="z")
    alone("start")
    wanted = alone.rest()
    others = [talk_about(model, pairs_of(model), site="z") for _ in range(2)]
    found = [None, None]

    def go(which):
        others[which]("start")
        others[which]("pick", layer=which, at=1)
        found[which] = others[which].rest()

    threads = [threading.Thread(target=go, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    def cells(pieces):
        return {tuple(c[:2]): c[2] for p in pieces if p["kind"] == "map" and p["exact"]
                for c in p["cells"]}  # fmt: skip

    for own in found:
        assert cells(own) == pytest.approx(cells(wanted), abs=1e-5)
    assert [len(other.kernel.state.changes) for other in others] == [1, 1]


def test_a_widget_answers_through_its_channel_and_is_freed(tiny_bridge, pairs_of):
    model = tiny_bridge("llama3")
    widget, other = (explore(model, pairs_of(model)) for _ in range(2))
    sent = []
    widget.send = sent.append
    widget._handle_custom_msg({"type": "pick", "id": "a", "layer": 1, "at": 10}, [])
    assert sent[0]["kind"] == "picked"
    assert len(widget.condition.interventions) == 1
    assert other.condition.interventions == ()
    kernel = weakref.ref(widget.kernel)
    widget.close()
    with pytest.raises(SpecError, match="closed"):
        _ = widget.dataset
    del widget
    gc.collect()
    assert kernel() is None
    assert other.kernel is not None
    other.close()


def test_the_dataset_is_the_map(tiny_bridge, pairs_of, tmp_path):
    import tlkit as tk

    model = tiny_bridge("llama3")
    widget = tk.explore(model, pairs_of(model), site="z", example=1, direction="noise")
    ds = widget.dataset
    assert dict(ds.sizes) == {"metric": 1, "layer": 3, "head": 4, "example": 1}
    assert ds.attrs["on"] == "clean"
    assert tk.open(tk.save(ds, tmp_path / "map.zarr"))["effect"].equals(ds["effect"])
    widget.close()


def test_wrong_beginnings_are_refused(tiny_bridge, pairs_of):
    model = tiny_bridge("llama3")
    with pytest.raises(SpecError, match="needs pairs"):
        explore(model, Prompts.from_texts(model, ["The cat"]))
    with pytest.raises(SpecError, match="Prompts are made with"):
        explore(model, ["The cat"])
    with pytest.raises(SpecError, match="There is no site 'pattern'"):
        explore(model, pairs_of(model), site="pattern")
    with pytest.raises(SpecError, match="needs the packed engine"):
        explore(tiny_bridge("falcon"), pairs_of(tiny_bridge("falcon")))


def test_the_metric_at_first_is_one_that_can_be_read(tiny_bridge):
    model = tiny_bridge("llama3")
    sides = ["The cat sat"], ["The dog sat"]
    for answers, wanted in (((["yes"], ["no"]), "logit_diff"), ((["abc"], ["no"]), "answer_prob")):
        widget = explore(model, Prompts.from_pairs(model, *sides, *answers))
        assert widget.state.metric == wanted
        widget.close()
    rows = [[0, 5, 6]], [[0, 7, 6]]
    widget = explore(model, Prompts.from_tokens(*rows))
    assert widget.state.metric == "kl"
    widget.close()
