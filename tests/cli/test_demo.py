"""`tlkit demo` on a tiny model: the page, what it says, and that it needs nothing else.

Faults to plant: draw the attention of another prompt; take pairs of several lengths; rank heads
without their sign.
"""

import json

import numpy as np
import pytest

from tlkit.cli.app import main
from tlkit.models.bridge import Parts
from tlkit.models.load import HookedTransformer
from tlkit.prompts import samples
from tlkit.prompts.prompts import Prompts
from tlkit.studies import patching

IOI = "When {a} and {b} went to the store, {c} gave a drink to"
FACT = "The capital of {} is"


def ioi(a, b):
    texts = IOI.format(a=a, b=b, c=b), IOI.format(a=a, b=b, c=a)
    return row("ioi", *texts, f" {a}", f" {b}")


def row(kind, clean, corrupted, answer, wrong_answer):
    return {
        "kind": kind, "clean": clean, "corrupted": corrupted, "answer": answer,
        "wrong_answer": wrong_answer,
    }  # fmt: skip


ALIKE = [ioi("Mary", "John"), ioi("Tom", "Mary")]
FACTS = [
    row("facts", FACT.format("Italy"), FACT.format("France"), " Rome", " Paris"),
    row("facts", FACT.format("France"), FACT.format("Italy"), " Paris", " Rome"),
]
OTHERS = [
    row("ioi", "The dog and the cat went to", "The dog and the dog went to", " the", " a"),
    row("facts", FACT.format("Japan"), FACT.format("Italy"), " Tokyo", " Rome"),  # five tokens
    row("nonsense", "The cat sat", "The dog sat", " in", " to"),
]


@pytest.fixture
def model(tiny_bridge, monkeypatch):
    made = tiny_bridge("llama3")
    # The tiny tokenizer cuts some questions into more tokens than the tiny model is made for.
    monkeypatch.setattr(Parts(made).config, "max_position_embeddings", 512)
    monkeypatch.setattr(HookedTransformer, "from_pretrained", lambda *_, **__: made)
    monkeypatch.setattr(samples, "pairs", lambda: [OTHERS[0], *ALIKE, *FACTS, *OTHERS[1:]])
    return made


def demo(capsys, *words):
    capsys.readouterr()
    code = main(["demo", *map(str, words)])
    return (code, *capsys.readouterr())


def heads_of(model, rows):
    """The three heads with the largest mean effect, asked of the library directly."""
    names = ("clean", "corrupted", "answer", "wrong_answer")
    prompts = Prompts.from_pairs(model, *([one[name] for one in rows] for name in names))
    effect = patching.run(model, prompts, "z")["effect"].isel(metric=0).mean("example").values
    order = np.argsort(-abs(effect).ravel(), kind="stable")[:3]
    return [(*np.unravel_index(i, effect.shape), effect.ravel()[i]) for i in order]


def test_the_page_shows_what_the_library_finds(model, tmp_path, capsys, look):
    page = tmp_path / "report.html"
    code, out, err = demo(capsys, "--out", page, "--json", "--seed", "5")
    assert (code, out.count("\n"), err) == (0, 1, "Loading smollm2-135m-instruct …\n")
    told = json.loads(out)
    assert told["out"] == str(page)
    assert told["bytes"] == page.stat().st_size < 8_000_000
    for kind, rows in (("ioi", ALIKE), ("facts", FACTS)):
        wanted = heads_of(model, rows)
        heads = told["heads"][kind]
        assert [(one["layer"], one["head"]) for one in heads] == [one[:2] for one in wanted]
        assert [one["value"] for one in heads] == pytest.approx([x for *_, x in wanted], abs=1e-5)
        assert {one["n"] for one in heads} == {2}  # the pairs of another shape are left out

    text = page.read_text(encoding="utf-8")
    for rows in (ALIKE, FACTS):
        assert all(one["clean"] in text and one["corrupted"] in text for one in rows)
    assert not any(one["clean"] in text for one in OTHERS)
    assert "<th>seed</th><td>5</td>" in text

    seen = look(page)
    # For each kind: both maps of all pairs, and one of the first pair with its tokens.
    seen.wait("document.querySelectorAll('.js-plotly-plot .heatmaplayer').length === 6")
    # This model gets no question right, so nothing can be probed; both intervention curves stand.
    curves = "[...document.querySelectorAll('.js-plotly-plot')].filter(p => p._fullData.length > 1)"
    seen.wait("document.querySelectorAll('.js-plotly-plot').length === 8")
    drawn = seen.ask(f"{curves}.map(p => p._fullData.map(trace => trace.name).join())")
    assert len(drawn) == 2
    assert all("Q-anchored" in names for names in drawn), drawn
    assert "right and" in text
    # Of each kind three heads, and one of them large.
    seen.wait("document.querySelectorAll('.attention canvas').length === 8")
    names = [f"layer {layer} head {head}" for layer, head, _ in heads_of(model, ALIKE)]
    assert all(name in text for name in names)
    assert seen.requests == [page.as_uri()]
    assert (seen.errors, seen.dialogs) == ([], [])


def test_text_says_where_the_page_is(model, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = demo(capsys)
    size = (tmp_path / "report.html").stat().st_size
    assert (code, out) == (
        0,
        f"Wrote report.html ({size / 1e6:.1f} MB): open it by double click.\n",
    )
    code, out, err = demo(capsys)
    assert (code, out) == (2, "")
    assert "report.html exists already" in err
    assert demo(capsys, "--overwrite")[0] == 0


def test_a_tokenizer_that_cuts_every_answer_is_told(model, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(samples, "pairs", lambda: [OTHERS[1] | {"kind": "ioi"}])
    code, _, err = demo(capsys, "--out", tmp_path / "r.html")
    assert code == 2
    assert err.endswith("cuts every answer of the demo into several tokens.\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "r.pdf"], r"must end in .html"),
        (["--out", "nowhere/r.html"], "the folder nowhere does not exist"),
        (["--device", "gpu"], "--device gpu is not a device"),
    ],
)
def test_bad_requests_are_one_line_before_any_model(tmp_path, capsys, monkeypatch, words, message):
    def refuse(*_, **__):
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(HookedTransformer, "from_pretrained", refuse)
    monkeypatch.chdir(tmp_path)
    code, out, err = demo(capsys, *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert list(tmp_path.iterdir()) == []
