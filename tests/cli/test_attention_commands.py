"""`tlkit conditions` and `tlkit variance` on a tiny model."""

import json

import pytest

from tlkit.cli.app import main
from tlkit.models.load import HookedTransformer
from tlkit.prompts.prompts import Prompts
from tlkit.results.files import open as open_store
from tlkit.spec.insertions import Insert
from tlkit.studies import conditions as study
from tlkit.studies import variance as variance_study

TEXTS = ["The cat sat on the mat.", "Who wrote the book?", "Count to five, please."]
LONG = ["The cat sat on the mat and looked at the dog. " * 2, "Who wrote the book about it? " * 3]


@pytest.fixture
def model(tiny_bridge, monkeypatch):
    made = tiny_bridge("llama3")
    monkeypatch.setattr(HookedTransformer, "from_pretrained", lambda *_, **__: made)
    return made


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in TEXTS))
    return path


@pytest.fixture
def documents(tmp_path):
    path = tmp_path / "documents.jsonl"
    rows = [{"id": f"d{i}", "text": text} for i, text in enumerate(LONG)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run(capsys, *words):
    capsys.readouterr()
    code = main([*map(str, words)])
    return (code, *capsys.readouterr())


def test_conditions_says_what_the_library_finds(model, prompts, tmp_path, capsys, look):
    page = tmp_path / "c.html"
    code, out, _ = run(
        capsys, "conditions", "--prompts", prompts, "--insert", "Miess=/ ", "--insert", "he=he ",
        "--times", 4, "--control", "he", "--out", page, "--json", "--head", "2.3",
    )  # fmt: skip
    assert code == 0
    told = json.loads(out)
    made = Prompts.from_texts(model, TEXTS)
    ds = study.run(model, made, {"Miess": Insert("/ " * 4), "he": Insert("he " * 4)})
    for against in ("None", "he"):
        wanted = study.ranked(study.changed_heads(ds, "Miess", against)).to_dict("records")
        found = told["changed"][f"Miess against {against}"]
        assert [(one["layer"], one["head"]) for one in found] == [
            (one["layer"], one["head"]) for one in wanted
        ]
        assert found[0]["effect_size"] == pytest.approx(wanted[0]["effect_size"], rel=1e-4)
    seen = look(page)
    seen.wait("document.querySelectorAll('.js-plotly-plot').length >= 6")
    seen.wait("document.querySelectorAll('.attention canvas').length >= 2")
    assert "layer 2, head 3" in page.read_text(encoding="utf-8")
    assert seen.requests == [page.as_uri()]
    assert (seen.errors, seen.dialogs) == ([], [])


def test_heads_may_be_counted_from_one(model, prompts, tmp_path, capsys):
    page = tmp_path / "c.html"
    words = ["conditions", "--prompts", prompts, "--insert", "Miess=/ ", "--out", page]
    code, out, _ = run(capsys, *words, "--head", "3.4", "--one-based")
    assert code == 0
    text = page.read_text(encoding="utf-8")
    assert "layer 3, head 4" in text
    assert f"Wrote {page}." in out


def test_variance_says_what_the_library_finds(model, documents, tmp_path, capsys, look):
    page = tmp_path / "v.html"
    code, out, _ = run(
        capsys, "variance", "--documents", documents, "--model", "a", "--compare", "b",
        "--window", 4, "--out", page, "--json",
    )  # fmt: skip
    assert code == 0
    told = json.loads(out)
    ds = variance_study.run(model, LONG, window=4)
    wanted = ds["layer_variance"].sel(kind="temporal").mean("document").values[0]
    assert told["layer_variance"]["temporal"][1] == pytest.approx(wanted.tolist(), rel=1e-4)
    assert told["models"] == ["a", "b"]
    seen = look(page)
    seen.wait("document.querySelectorAll('.js-plotly-plot').length === 12")
    assert (seen.errors, seen.dialogs) == ([], [])
    assert "b less a" in page.read_text(encoding="utf-8")


def test_stores_hold_everything(model, prompts, documents, tmp_path, capsys):
    first, second = tmp_path / "c.zarr", tmp_path / "v.zarr"
    insert = ["--insert", "Miess=/ "]
    assert run(capsys, "conditions", "--prompts", prompts, *insert, "--out", first)[0] == 0
    assert run(capsys, "variance", "--documents", documents, "--window", 4, "--out", second)[0] == 0
    assert open_store(first)["attention_weight"].dims == (
        "condition", "layer", "head", "pos", "example",
    )  # fmt: skip
    assert open_store(second).attrs["study"] == "variance"
    code, _, err = run(capsys, "variance", "--documents", documents, "--out", second)
    assert (code, "exists already" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["conditions", "--insert", "Miess=/ "], "needs --out"),
        (["conditions", "--out", "x.html"], "needs one to compare"),
        (["conditions", "--insert", "Miess", "--out", "x.html"], "LABEL=TEXT"),
        (["conditions", "--insert", "a=/", "--insert", "a=/", "--out", "x.html"], "twice"),
        (["conditions", "--insert", "a=/", "--control", "b", "--out", "x.html"], "--control 'b'"),
        (["conditions", "--insert", "a=/", "--head", "3", "--out", "x.html"], "LAYER.HEAD"),
        (["conditions", "--insert", "a=/", "--head", "0.1", "--one-based", "--out", "x.html"],
         "begin with 1"),
        (["conditions", "--insert", "a=/", "--out", "x.csv"], ".html or .zarr"),
        (["variance"], "needs --out"),
        (["variance", "--out", "x.html", "--model", "a", "--compare", "a"], "there already"),
        (["variance", "--out", "x.html", "--window", "1"], "greater than or equal to 2"),
    ],
)  # fmt: skip
def test_bad_requests_are_one_line_before_any_model(
    prompts, documents, tmp_path, capsys, monkeypatch, words, message
):
    def refuse(*_, **__):
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(HookedTransformer, "from_pretrained", refuse)
    monkeypatch.chdir(tmp_path)
    given = ["--prompts", prompts] if words[0] == "conditions" else ["--documents", documents]
    code, out, err = run(capsys, *words, *given)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
