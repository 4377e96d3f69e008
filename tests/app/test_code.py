"""The code that can be copied gives the number that is on the screen.

Faults to plant: leave `on` out; leave a change out; write another token than the prompt's.
"""

import pytest

from tlkit.models.load import HookedTransformer
from tlkit.models.tiny import tiny, tiny_tokenizer
from tlkit.prompts.prompts import Prompts


def told(code, **names):
    """What the code finds."""
    space = dict(names)
    exec(compile(code, "copied", "exec"), space)
    return space


@pytest.mark.parametrize("metric", ["logit_diff", "answer_prob", "kl"])
@pytest.mark.parametrize("direction", ["denoise", "noise"])
@pytest.mark.parametrize("example", [0, 1])
def test_code_of_changes(talk, metric, direction, example):
    say = talk(metric=metric, direction=direction, example=example)
    say("start")
    say("pick", layer=1, at=3)
    say("show", site="z")
    say("pick", layer=2, at=1, add=True)
    say("cut", layer=None, head=None, query=9, key=2)
    shown = say("ablate", layer=0, head=2)["picked"]["value"]
    code = say("code")["code"]
    assert "from_pairs(" in code
    assert told(code)["value"] == pytest.approx(shown, abs=1e-5)
    assert "Patch(tk.Site('z', layer=2, head=1)" in code


def test_code_of_the_map(talk):
    say = talk(site="v", direction="noise")
    say("start")
    cells = {tuple(c[:2]): c[2] for p in say.rest() if p["exact"] for c in p["cells"]}
    found = told(say("code")["code"])["found"]
    effect = found["effect"].values[0, :, :, 0]
    assert {cell: float(effect[cell]) for cell in cells} == pytest.approx(cells, abs=1e-5)


def test_code_after_an_edit_and_in_a_chat(tiny_bridge, talk_about):
    model = tiny_bridge("llama3")
    sides = ["The cat sat"], ["The dog sat"]
    say = talk_about(model, Prompts.from_pairs(model, *sides, ["The"], ["When"], chat=True))
    say("start")
    asked = {"clean": "The city\nsat", "corrupted": 'The "dog" sat'}
    frame = say("edit", **asked, answer="When", wrong_answer="The")["frame"]
    shown = say("pick", layer=1, at=frame["columns"] - 1)["picked"]["value"]
    code = say("code")["code"]
    assert "chat=True" in code
    assert told(code)["value"] == pytest.approx(shown, abs=1e-5)


@pytest.mark.parametrize("spans", [None, {"subject": [(1, 3)]}])
def test_code_of_token_ids(tiny_bridge, talk_about, spans):
    """Ids of no text; a span decides what is aligned where the pair's lengths differ."""
    model = tiny_bridge("llama3")
    clean, corrupted = [[0, 9, 200, 201, 11, 12]], [[0, 9, 65, 11, 12]]
    given = {} if spans is None else {"spans": spans, "corrupted_spans": {"subject": [(1, 2)]}}
    say = talk_about(model, Prompts.from_tokens(clean, corrupted, [7], [8], model=model, **given))
    say("start")
    shown = say("pick", layer=0, at=1)["picked"]["value"]
    code = say("code")["code"]
    assert "from_tokens(" in code
    assert told(code)["value"] == pytest.approx(shown, abs=1e-5)


def test_code_of_a_model_that_was_an_object(talk_about):
    model = HookedTransformer.from_pretrained(tiny("llama3"), tokenizer=tiny_tokenizer())
    prompts = Prompts.from_pairs(model, ["The cat sat"], ["The dog sat"], ["yes"], ["no"])
    say = talk_about(model, prompts)
    say("start")
    shown = say("pick", layer=1, at=2)["picked"]["value"]
    code = say("code")["code"]
    assert "# model:" in code
    assert told(code, model=model)["value"] == pytest.approx(shown, abs=1e-5)
