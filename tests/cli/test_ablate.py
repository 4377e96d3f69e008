"""`tlkit ablate` on tiny models."""

import json

import numpy as np
import pytest

from tlkit.cli.app import main
from tlkit.models.load import HookedTransformer
from tlkit.results.files import open as open_store
from tlkit.studies import ablation

ROWS = [
    {"prompt": "The cat sat on the", "answer": "mat and"},
    {"prompt": "Who wrote the book about", "answer": "it"},
    {"prompt": "The dog", "answer": "is here"},
]


@pytest.fixture
def models(tiny_bridge, monkeypatch):
    made = {"a": tiny_bridge("llama3"), "b": tiny_bridge("gptj")}
    monkeypatch.setattr(HookedTransformer, "from_pretrained", lambda name, **_: made[name])
    return made


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def run(capsys, *words):
    capsys.readouterr()
    code = main([*map(str, words)])
    return (code, *capsys.readouterr())


def test_it_says_what_the_library_finds(models, prompts, tmp_path, capsys, look):
    page = tmp_path / "a.html"
    code, out, _ = run(
        capsys, "ablate", "--prompts", prompts, "--model", "a", "--model", "b", "--value", "mean",
        "--components", "attn_out,block", "--heads", "--says", "A", "--max-new-tokens", 3,
        "--out", page, "--json",
    )  # fmt: skip
    assert code == 0
    told = json.loads(out)
    ds = ablation.run(
        models, ROWS, value="mean", components=["attn_out", "block", "heads"],
        behaviour={"A": lambda text: "a" in text.lower()}, max_new_tokens=3,
    )  # fmt: skip
    assert (told["models"], told["sites"], told["layers"]) == (
        ["a", "b"], ["attn_out", "block"], [0, 1, 2],
    )  # fmt: skip
    for name in ("kl", "loss", "answer_prob", "head_kl"):
        for model in models:
            wanted = ds[name].sel(model=model).mean("example")
            np.testing.assert_allclose(told["means"][name][model], wanted, rtol=1e-4)
    rates = np.array(told["means"]["behaviour"]["a"], float)
    np.testing.assert_array_equal(rates, ds["behaviour"].sel(model="a").mean("example"))
    tested = ablation.compare(ds, "a", "b", "kl").sel(site="block", layer=1)
    row = next(
        row for row in told["differences"]["kl"]["b"] if (row["site"], row["layer"]) == ("block", 1)
    )
    for name in ("difference", "low", "high", "p_value", "p_adjusted"):
        assert row[name] == pytest.approx(float(tested[name]), rel=1e-4)
    seen = look(page)
    # Curves of four effects; of three of them heads: two models and their difference each.
    seen.wait("document.querySelectorAll('.js-plotly-plot').length === 13")
    assert (seen.errors, seen.dialogs) == ([], [])
    text = page.read_text(encoding="utf-8")
    assert "b less a" in text
    assert "too few to tell models apart" in text


def test_a_store_holds_everything_and_a_table_is_shown(models, prompts, tmp_path, capsys):
    store = tmp_path / "a.zarr"
    code, out, _ = run(
        capsys, "ablate", "--prompts", prompts, "--model", "a", "--components", "none", "--heads",
        "--out", store,
    )  # fmt: skip
    assert code == 0
    kept = open_store(store)
    assert kept["head_kl"].dims == ("model", "layer", "head", "example")
    assert "kl" not in kept
    assert f"{float(kept['head_kl'].mean(('head', 'example'))[0, 2]):.3f}" in out
    code, _, err = run(capsys, "ablate", "--prompts", prompts, "--out", store)
    assert (code, "exists already" in err) == (2, True)


def test_a_reference_file_windows_and_a_plan(models, prompts, tmp_path, capsys):
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps({"prompt": "Another text about dogs"}) + "\n")
    words = ["ablate", "--prompts", prompts, "--model", "a", "--value", "mean", "--windows", 2,
             "--reference", other, "--per-position"]  # fmt: skip
    code, out, _ = run(capsys, *words, "--json")
    assert code == 0
    told = json.loads(out)
    assert told["layers"] == ["0-1", "1-2"]
    ds = ablation.run(
        models["a"], ROWS, value="mean", windows=2, pooled=False,
        reference=["Another text about dogs"],
    )  # fmt: skip
    wanted = ds["kl"].mean("example").values[0]
    np.testing.assert_allclose(told["means"]["kl"]["a"], wanted, rtol=1e-4)
    code, out, _ = run(capsys, *words, "--plan", "--json")
    assert (code, json.loads(out)["plan"]["sweeps"]["a"]["cells"]) == (0, 6)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "needs --out"),
        (["--out", "x.csv"], ".html or .zarr"),
        (["--json", "--model", "a", "--model", "a"], "names a model twice"),
        (["--json", "--components", "attn"], "no component 'attn'"),
        (["--json", "--components", "none"], "at least one component"),
        (["--json", "--value", "noise"], "noise"),
        (["--json", "--value", "skip", "--heads"], "cannot be skipped"),
        (["--json", "--windows", "2", "--heads"], "one by one"),
        (["--json", "--windows", "0"], "greater than or equal to 1"),
        (["--json", "--says", ""], "--says needs a text"),
        (["--json", "--reference", "prompts.jsonl"], "--value mean or resample"),
        (["--json", "--value", "mean", "--reference", "gone.jsonl"], "There is no file"),
        (["--json", "--fields", "prompt=question"], "column 'question' is missing"),
        (["--json", "--budget", "much"], "A budget is"),
        (["--json", "--device", "toaster"], "is not a device"),
    ],
)
def test_bad_requests_are_one_line_before_any_model(
    prompts, tmp_path, capsys, monkeypatch, words, message
):
    def refuse(*_, **__):
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(HookedTransformer, "from_pretrained", refuse)
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, "ablate", "--prompts", prompts, *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
