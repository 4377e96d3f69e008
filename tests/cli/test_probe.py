"""``tlkit probe`` says what the library finds, and refuses bad requests before any model."""

import json

import numpy as np
import pytest

from tlkit.cli.app import main
from tlkit.models.load import HookedTransformer
from tlkit.results.files import open as open_store
from tlkit.studies import layer_probes

ROWS = [
    {"prompt": f"{'Who is' if i % 2 else 'Count'} {i // 2}", "label": "ask" if i % 2 else "do"}
    for i in range(24)
]
FAST = ["--features", "last", "--folds", "3"]


@pytest.fixture
def labelled(tmp_path):
    path = tmp_path / "labelled.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


@pytest.fixture
def model(tiny_bridge, monkeypatch):
    made = tiny_bridge("llama3")
    monkeypatch.setattr(HookedTransformer, "from_pretrained", lambda *_, **__: made)
    return made


def run(capsys, *words):
    capsys.readouterr()
    code = main(["probe", *map(str, words)])
    return (code, *capsys.readouterr())


def test_probe_says_what_the_library_finds(model, labelled, tmp_path, capsys):
    page, store = tmp_path / "p.html", tmp_path / "p.zarr"
    words = ["--prompts", labelled, "--positive", "ask", *FAST, "--model", "a", "--model", "b"]
    code, out, _ = run(
        capsys, *words, "--out", page, "--json", "--store", tmp_path / "s"
    )  # fmt: skip
    assert code == 0
    told = json.loads(out)
    ds = layer_probes.run({"a": model}, ROWS, positive="ask", features="last", folds=3)
    wanted = ds["f1"].sel(model="a", site="attn_out").mean("fold").values
    np.testing.assert_allclose(told["f1"]["b"]["attn_out"], wanted, rtol=1e-9)
    assert told["best"][0]["shuffled"] == pytest.approx(
        layer_probes.table(ds)[0]["shuffled"], rel=1e-9
    )
    text = page.read_text(encoding="utf-8")
    assert "Attention output" in text
    assert run(capsys, *words, "--out", store)[0] == 0
    assert open_store(store)["f1"].dims == ("model", "site", "layer", "fold")


def test_a_plan_costs_no_pass(model, labelled, capsys, monkeypatch):
    monkeypatch.setattr(layer_probes.study, "Activations", None)
    code, out, _ = run(
        capsys, "--prompts", labelled, "--positive", "ask", "--plan", "--json", "--rank", 2
    )
    assert code == 0
    cost = json.loads(out)["plan"]["smollm2-135m-instruct"]
    assert (cost["prompts"], cost["layers"], cost["decompositions"]) == (24, 3, 3 * 2 * 5 * 3)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--positive", "ask"], "needs --out"),
        (["--positive", "bird", "--out", "x.html"], "No prompt is labelled 'bird'"),
        (["--positive", "ask", "--out", "x.csv"], ".html or .zarr"),
        (["--positive", "ask", "--out", "x.html", "--folds", "13"], "fewer than the 13 folds"),
        (["--positive", "ask", "--out", "x.html", "--model", "a", "--model", "a"], "twice"),
        (["--positive", "do", "--out", "x.html", "--n", "1"], "two classes are told apart"),
        (["--positive", "ask", "--out", "x.html", "--rank", "99", "--last-tokens", "2"],
         "rank is 99"),
        (["--out", "x.html"], "--positive"),
    ],
)  # fmt: skip
def test_bad_requests_are_one_line_before_any_model(
    labelled, tmp_path, capsys, monkeypatch, words, message
):
    def refuse(*_, **__):
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(HookedTransformer, "from_pretrained", refuse)
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, "--prompts", labelled, *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
