"""`tlkit patch` as a user meets it, against `tk.patching.run` on the same pairs.

Faults to plant: write the old page before the run; ignore --fields after the check; name a page as
what --resume continues; load a model before the request is read.
"""

import contextlib
import importlib.util
import json
import os
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr

import tlkit as tk
from tlkit.cli.app import main
from tlkit.cli.output import Bar
from tlkit.engine import on_ray, packed_values
from tlkit.engine.packed_values import PackedBackend
from tlkit.engine.reference_values import ReferenceBackend
from tlkit.engine.worker import Here
from tlkit.errors import EngineError
from tlkit.models.info import info
from tlkit.models.load import HookedTransformer
from tlkit.prompts.prompts import Prompts
from tlkit.studies import patching

TEMPLATE = "When {a} and {b} went to the store, {c} gave a drink to"
NAMES = [("Mary", "John"), ("Tom", "Mary"), ("John", "Tom")]
ROWS = [
    {
        "clean": TEMPLATE.format(a=a, b=b, c=b),
        "corrupted": TEMPLATE.format(a=a, b=b, c=a),
        "answer": a,
        "wrong_answer": b,
    }
    for a, b in NAMES
]
LENGTH, FIRST, LAYERS = 15, 10, 3  # tokens, the first that differs (the only one), blocks


@pytest.fixture
def model(tiny_bridge, monkeypatch):
    """The tiny model that every command of these tests loads."""
    made = tiny_bridge("llama3")
    monkeypatch.setattr(HookedTransformer, "from_pretrained", lambda *_, **__: made)
    return made


@pytest.fixture
def no_model(monkeypatch):
    """Loading one is a failure, exit code 1."""

    def refuse(*_, **__):
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(HookedTransformer, "from_pretrained", refuse)


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)), encoding="utf-8")
    return path


def columns(names=("clean", "corrupted", "answer", "wrong_answer")):
    return [[row[name] for row in ROWS] for name in names]


@pytest.fixture
def direct(model):
    """What the library gives for a site and options, asked directly."""
    prompts = Prompts.from_pairs(model, *columns())

    def run(site="resid_pre", **options):
        return patching.run(model, prompts, site, **options)

    return run


def patch(capsys, *words):
    """`tlkit patch words…`: its exit code, stdout and stderr."""
    capsys.readouterr()
    code = main(["patch", *map(str, words)])
    return (code, *capsys.readouterr())


@contextlib.contextmanager
def no_forward():
    def refuse(module, args):
        raise AssertionError(f"{type(module).__name__} was run")

    handle = torch.nn.modules.module.register_module_forward_pre_hook(refuse)
    try:
        yield
    finally:
        handle.remove()


def near(found, wanted):
    for name in ("value", "effect", "recovered", "clean", "corrupted"):
        np.testing.assert_allclose(found[name], wanted[name], atol=1e-5, err_msg=name)


def test_a_page_has_both_maps_and_how_they_were_made(model, pairs, tmp_path, capsys):
    page = tmp_path / "map.html"
    code, out, err = patch(capsys, pairs, "--out", page)
    assert (code, err) == (0, "Loading smollm2-135m-instruct …\n")
    assert out.rstrip().endswith(f"Wrote {page}.")
    assert out.index("resid_pre: largest mean effects") < out.index("z: largest mean effects")
    text = page.read_text(encoding="utf-8")
    assert text.count("<h2>") == 2
    assert "<h2>Patching resid_pre</h2>" in text
    assert "<h2>Patching z</h2>" in text
    assert text.count("Plotly.newPlot(") == 2
    assert info(model).weight_hash in text
    assert set(tmp_path.iterdir()) == {pairs, page}


def test_a_store_is_what_the_library_gives(model, pairs, direct, tmp_path, capsys):
    store = tmp_path / "map.zarr"
    code, out, _ = patch(
        capsys, "--pairs", pairs, "--out", store, "--site", "z", "--audit", "0.5", "--seed", "3"
    )
    assert code == 0
    found, wanted = tk.open(store), direct("z")
    near(found, wanted)
    assert found["value"].dims == ("metric", "layer", "head", "example")
    assert (found.attrs["site"], found.attrs["study"]) == ("z", "patching")
    assert (found.attrs["complete"], found.attrs["seed"]) == (True, 3)
    assert found.attrs["audit_jobs"] == LAYERS * 4 * 3 // 2
    assert found.attrs["audit_difference"] < 1e-5
    assert set(tmp_path.iterdir()) == {pairs, store}
    # The five largest of the mean over pairs, in the table's own order.
    effect = wanted["effect"].isel(metric=0).mean("example").values
    order = np.argsort(-abs(effect).ravel())[:5]
    rows = [line.split() for line in out.splitlines()[2:7]]
    assert [(int(a), int(b)) for a, b, *_ in rows] == [
        tuple(np.unravel_index(i, effect.shape)) for i in order
    ]
    assert [float(row[2]) for row in rows] == pytest.approx(effect.ravel()[order], abs=6e-4)
    assert {row[4] for row in rows} == {"3"}


def test_a_table_has_a_row_for_each_cell(model, pairs, direct, tmp_path, capsys):
    table = tmp_path / "map.csv"
    assert patch(capsys, pairs, "--out", table, "--site", "k", "--by", "heads")[0] == 0
    frame, wanted = pd.read_csv(table), direct("k", by="heads")
    assert len(frame) == LAYERS * 2 * 3  # two key/value heads
    for _, row in frame.iterrows():
        where = {name: row[name] for name in ("metric", "layer", "kv_head", "example")}
        cell = wanted.sel(where)
        assert row["effect"] == pytest.approx(float(cell["effect"]), abs=1e-5)
        assert row["clean"] == pytest.approx(float(cell["clean"]), abs=1e-5)


def test_json_is_one_object_alone_on_stdout(model, pairs, direct, capsys):
    code, out, err = patch(capsys, pairs, "--json", "--site", "resid_pre", "--site", "attn_out")
    assert (code, out.count("\n"), err) == (0, 1, "Loading smollm2-135m-instruct …\n")
    found = json.loads(out)
    assert found["out"] is None
    assert list(found["maps"]) == ["resid_pre", "attn_out"]
    for site, told in found["maps"].items():
        effect = direct(site)["effect"].isel(metric=0).mean("example")
        assert len(told["top"]) == 5
        for cell in told["top"]:
            assert cell["value"] == pytest.approx(
                float(effect.sel(layer=cell["layer"], pos=cell["pos"])), abs=1e-5
            )
            assert (cell["units"], cell["n"]) == ("logits", 3)
        assert abs(told["top"][0]["value"]) == pytest.approx(float(abs(effect).max()), abs=1e-5)


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (["--engine", "reference"], {}),
        (["--noise"], {"on": "clean"}),
        (["--metric", "answer_prob"], {"metrics": tk.AnswerProb()}),
        (["--metric", "kl", "--budget", "1MiB"], {"metrics": tk.KL()}),
        (["--site", "v", "--by", "positions"], {"site": "v", "by": "positions"}),
    ],
)
def test_options_reach_the_run(model, pairs, direct, tmp_path, capsys, words, options):
    store = tmp_path / "map.zarr"
    assert patch(capsys, pairs, "--out", store, *words)[0] == 0
    found, wanted = tk.open(store), direct(**options)
    near(found, wanted)
    assert found.attrs["engine"] == ("reference" if "reference" in words else "packed")
    assert found.attrs["on"] == options.get("on", "corrupted")
    assert float(abs(found["effect"]).max()) > 1e-4


def test_the_chat_template_is_put_around(model, pairs, tmp_path, capsys):
    store = tmp_path / "map.zarr"
    words = ["--chat", "--metric", "answer_prob", "--site", "mlp_out", "--n", "2"]
    assert patch(capsys, pairs, "--out", store, *words)[0] == 0
    some = [column[:2] for column in columns()]
    prompts = Prompts.from_pairs(model, *some, chat=True)
    near(tk.open(store), patching.run(model, prompts, "mlp_out", tk.AnswerProb()))


def test_columns_of_other_names(model, pairs, tmp_path, capsys):
    other = tmp_path / "other.jsonl"
    names = {"clean": "prompt", "answer": "right", "wrong_answer": "wrong"}
    renamed = [{names.get(k, k): v for k, v in row.items()} for row in ROWS]
    other.write_text("\n".join(map(json.dumps, renamed)), encoding="utf-8")
    fields = ",".join(f"{name}={column}" for name, column in names.items())
    answers = []
    for words in ([pairs], [other, "--fields", fields]):
        code, out, _ = patch(capsys, *words, "--json")
        assert code == 0
        answers.append(json.loads(out)["maps"]["resid_pre"]["top"])
    assert answers[0] == answers[1]


def test_a_plan_counts_and_runs_nothing(model, pairs, capsys):
    patch(capsys, pairs, "--plan")  # finds out, once, which engine serves the model
    with no_forward():
        code, out, _ = patch(capsys, pairs, "--plan", "--json", "--site", "resid_pre")
        assert code == 0
    plan = json.loads(out)["plan"]["resid_pre"]
    right = sum(LENGTH - p for p in range(FIRST, LENGTH))
    # Layer 0 at the one token that differs; above it, at every token from there on.
    each = (LENGTH - FIRST) * LAYERS + right * sum(range(1, LAYERS))
    once = 2 * LENGTH * LAYERS
    assert plan["token_layers"] == 3 * (each + once)
    assert plan["plain_token_layers"] == 3 * (LAYERS * LENGTH) * LENGTH * LAYERS
    assert plan["jobs"] == 3 * (1 + (LAYERS - 1) * (LENGTH - FIRST))
    assert plan["cells"] * 3 == plan["jobs"] + plan["free"]
    with no_forward():
        code, out, _ = patch(capsys, pairs, "--plan", "--site", "z", "--n", "1")
    assert code == 0
    assert out.startswith("z: 12 cells on 1 prompts: 12 to run, 0 free, 0 absent.\n")


def test_a_plan_leaves_what_is_there_alone(model, pairs, tmp_path, capsys):
    page = tmp_path / "map.html"
    page.write_text("the old page")
    code, out, _ = patch(capsys, pairs, "--out", page, "--plan", "--site", "z")
    assert (code, page.read_text()) == (0, "the old page")
    assert out.startswith("z: 12 cells")


def interrupt(monkeypatch, calls):
    """Ctrl+C when progress is told for the calls-th time; what is told before is returned."""
    told = []

    def stage(self, label):
        def move(done, total):
            told.append((done, total))
            if len(told) == calls:
                raise KeyboardInterrupt

        return move

    monkeypatch.setattr(Bar, "stage", stage)
    return told


@pytest.mark.parametrize("engine", ["packed", "reference"])
def test_ctrl_c_keeps_what_was_finished(
    model, pairs, direct, tmp_path, capsys, monkeypatch, engine
):
    store = tmp_path / "map.zarr"
    words = [pairs, "--out", store, "--engine", engine, "--site", "attn_out"]
    with monkeypatch.context() as patched:
        patched.setattr(packed_values, "CHUNK", 16)
        patched.setattr(packed_values, "GROUP_ROWS", 16)
        interrupt(patched, 3)
        code, out, err = patch(capsys, *words)
    assert (code, out) == (130, "")
    assert err.splitlines()[-1] == (
        f"Interrupted: what was finished is kept in {store}; the same command with --resume goes "
        "on."
    )
    part, whole = tk.open(store), direct("attn_out")
    assert not part.attrs["complete"]
    left = np.isnan(part["value"].values)
    assert 0 < left.sum() < left.size
    np.testing.assert_allclose(part["value"].values[~left], whole["value"].values[~left], atol=1e-5)
    assert tk.plot(part).data  # usable as it is

    code, _, err = patch(capsys, *words)
    assert code == 2
    assert "exists already" in err or "has an unfinished run" in err
    again = []
    for backend in (PackedBackend, ReferenceBackend):
        run = backend.run
        monkeypatch.setattr(
            backend, "run",
            lambda self, jobs, *rest, run=run: (again.extend(jobs), run(self, jobs, *rest))[1],
        )  # fmt: skip
    code, out, _ = patch(capsys, *words, "--resume")
    assert code == 0
    assert len(again) == left.sum()  # nothing twice
    near(tk.open(store), whole)
    assert tk.open(store).attrs["complete"]
    assert set(tmp_path.iterdir()) == {pairs, store}

    with no_forward():  # once it is whole, it is only read
        assert patch(capsys, *words, "--resume")[:2] == (0, out)


def test_another_request_cannot_go_on_with_a_store(model, pairs, tmp_path, capsys):
    store = tmp_path / "map.zarr"
    assert patch(capsys, pairs, "--out", store)[0] == 0
    code, _, err = patch(capsys, pairs, "--out", store, "--noise", "--resume")
    assert code == 2
    assert f"{store} holds another run" in err


def test_ctrl_c_without_a_store_keeps_nothing(model, pairs, tmp_path, capsys, monkeypatch):
    page = tmp_path / "map.html"
    page.write_text("the old page")
    interrupt(monkeypatch, 1)
    code, out, err = patch(capsys, pairs, "--out", page, "--overwrite")
    assert (code, out) == (130, "")
    assert err.endswith("Interrupted: nothing was kept.\n")
    assert page.read_text() == "the old page"


def test_ctrl_c_after_the_first_map_keeps_that_one(model, pairs, tmp_path, capsys, monkeypatch):
    page = tmp_path / "map.html"
    stage = Bar.stage

    def stop_at_z(self, label):
        if label.endswith(" z"):
            raise KeyboardInterrupt
        return stage(self, label)

    monkeypatch.setattr(Bar, "stage", stop_at_z)
    code, out, err = patch(capsys, pairs, "--out", page)
    assert (code, out) == (130, "")
    assert err.endswith(f"Interrupted: {page} has what was finished: resid_pre.\n")
    assert page.read_text(encoding="utf-8").count("Plotly.newPlot(") == 1


def test_a_result_is_replaced_only_when_told_so(model, pairs, direct, tmp_path, capsys):
    store = tmp_path / "map.zarr"
    assert patch(capsys, pairs, "--out", store, "--site", "z")[0] == 0
    code, _, err = patch(capsys, pairs, "--out", store)
    assert code == 2
    assert "exists already: give another name, or --resume or --overwrite" in err
    assert "head" in tk.open(store).dims
    assert patch(capsys, pairs, "--out", store, "--overwrite")[0] == 0
    near(tk.open(store), direct("resid_pre"))


def test_a_run_that_breaks_its_promise_is_exit_1(model, pairs, tmp_path, capsys, monkeypatch):
    def broken(*_, **__):
        raise EngineError("the hook at blocks.0 never fired")

    monkeypatch.setattr(patching, "run", broken)
    code, out, err = patch(capsys, pairs, "--out", tmp_path / "map.csv")
    assert (code, out) == (1, "")
    assert err.splitlines()[-1] == "tlkit: the hook at blocks.0 never fired"
    assert not (tmp_path / "map.csv").exists()


def test_what_only_the_model_can_tell_is_exit_2(model, pairs, tmp_path, capsys):
    pairs.write_text(json.dumps({**ROWS[0], "answer": "Nebuchadnezzar"}))
    code, _, err = patch(capsys, pairs, "--json")
    assert code == 2
    assert "LogitDiff needs answers of one token; in example 0 the answer has 15" in err


BAD = [
    (["PAIRS", "--top", "3", "--json"], "say what --engine verified runs"),
    (["PAIRS", "--workers", "2", "--json"], "how many --executor ray has"),
    (["PAIRS", "--executor", "ray", "--engine", "gradient", "--json"], "spreads --engine packed"),
    (["--out", "m.html"], "needs one file of pairs"),
    (["PAIRS", "--pairs", "PAIRS", "--out", "m.html"], "needs one file of pairs"),
    (["PAIRS"], r"needs --out NAME\.html, \.zarr or \.csv"),
    (["nowhere.jsonl", "--json"], r"There is no file nowhere\.jsonl"),
    (["PAIRS", "--out", "m.pkl"], r"must end in \.html or \.zarr or \.csv"),
    (["PAIRS", "--out", "nowhere/m.csv"], "folder nowhere does not exist"),
    (["PAIRS", "--out", "m.zarr", "--site", "z", "--site", "q"], "holds one map; give one --site"),
    (["PAIRS", "--json", "--site", "residual"], "There is no site 'residual'"),
    (["PAIRS", "--json", "--site", "mlp_out", "--by", "heads"], "cannot be mapped by 'heads'"),
    (["PAIRS", "--json", "--site", "pattern", "--by", "positions"], "mapped by 'positions'"),
    (["PAIRS", "--json", "--budget", "lots"], "A budget is a number of bytes or text"),
    (["PAIRS", "--json", "--budget", "0"], "leaves no byte to work with"),
    (["PAIRS", "--json", "--audit", "1.5"], "--audit is a share between 0 and 1"),
    (["PAIRS", "--json", "--audit", "nan"], "--audit is a share between 0 and 1"),
    (["PAIRS", "--json", "--device", "gpu"], "--device gpu is not a device"),
    (["PAIRS", "--json", "--fields", "clean"], "--fields holds 'clean'"),
    (["PAIRS", "--json", "--fields", "prompt=clean"], "--fields names 'prompt'"),
    (["PAIRS", "--json", "--fields", "clean=text"], "line 1: column 'text' is missing"),
    (["PAIRS", "--json", "--metric", "loss"], "Invalid value for '--metric'"),
    (["PAIRS", "--json", "--n", "0"], "Invalid value for '--n'"),
    (["PAIRS", "--json", "--resume"], r"--resume needs --out NAME\.zarr"),
    (["PAIRS", "--out", "m.zarr", "--resume"], r"there is no store at m\.zarr"),
    (["PAIRS", "--out", "m.html", "--resume"], r"--resume continues a \.zarr store"),
    (["PAIRS", "--out", "m.zarr", "--resume", "--overwrite"], "contradict each other"),
]


def test_pairs_with_longer_answers_are_left_out_and_counted(model, pairs, tmp_path, capsys):
    long = {**ROWS[0], "answer": " the cat sat on"}
    pairs.write_text("".join(json.dumps(row) + "\n" for row in [long, *ROWS]), encoding="utf-8")
    words = ["--site", "z", "--out", tmp_path / "s.zarr"]
    code, _, err = patch(capsys, pairs, *words)
    assert code == 2
    assert "leave it out (--single-token)" in err
    code, _, err = patch(capsys, pairs, *words, "--single-token")
    assert code == 0
    assert f"{len(ROWS)} of {len(ROWS) + 1} pairs have answers of one token." in err
    assert tk.open(tmp_path / "s.zarr").sizes["example"] == len(ROWS)


def test_a_request_that_cannot_be_leaves_what_there_was(model, pairs, tmp_path, capsys):
    out = tmp_path / "kept.zarr"
    assert patch(capsys, pairs, "--site", "z", "--out", out)[0] == 0
    before = tk.open(out)
    long = {**ROWS[0], "answer": " the cat sat on"}
    pairs.write_text(json.dumps(long) + "\n", encoding="utf-8")
    assert patch(capsys, pairs, "--site", "z", "--out", out, "--overwrite")[0] == 2
    np.testing.assert_array_equal(tk.open(out)["value"], before["value"])


def test_an_audit_is_told(model, pairs, tmp_path, capsys):
    words = [pairs, "--site", "z", "--out", tmp_path / "a.zarr", "--audit", "1.0"]
    code, out, _ = patch(capsys, *words)
    assert code == 0
    assert "cells run again by the reference engine" in out


def test_how_much_is_verified_can_be_chosen(model, pairs, tmp_path, capsys):
    out = tmp_path / "v.zarr"
    words = ["--site", "z", "--engine", "verified", "--top", 3, "--remainder", 2, "--out", out]
    assert patch(capsys, pairs, *words)[0] == 0
    found = tk.open(out)
    assert (found.attrs["exact_top"], found.attrs["exact_sample"]) == (3, 2)


def test_workers_draw_the_same_map(model, pairs, tmp_path, capsys, monkeypatch):
    asked, find = [], importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: name == "ray" or find(name, *rest)
    )
    monkeypatch.setattr(on_ray, "Ray", lambda **options: asked.append(options) or Here())
    assert patch(capsys, pairs, "--out", tmp_path / "here.zarr")[0] == 0
    words = ["--executor", "ray", "--workers", 2, "--out", tmp_path / "many.zarr"]
    monkeypatch.setattr(sys.modules["tlkit.engine.run"], "executor_of", lambda given: given)
    assert patch(capsys, pairs, *words)[0] == 0
    assert asked == [{"workers": 2}]
    here, many = (tk.open(tmp_path / f"{name}.zarr") for name in ("here", "many"))
    xr.testing.assert_equal(here.drop_attrs(), many.drop_attrs())


def test_ray_that_is_not_installed_is_told(no_model, pairs, capsys, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    code, out, err = patch(capsys, pairs, "--executor", "ray", "--json")
    assert (code, out) == (2, "")
    assert "pip install 'tlkit[ray]'" in err


@pytest.mark.parametrize(("words", "message"), BAD, ids=[" ".join(words) for words, _ in BAD])
def test_bad_requests_are_one_line_before_any_model(
    no_model, pairs, tmp_path, capsys, monkeypatch, words, message
):
    monkeypatch.chdir(tmp_path)
    code, out, err = patch(capsys, *[pairs if word == "PAIRS" else word for word in words])
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("tlkit: ")
    assert re.search(message, err)
    assert list(tmp_path.iterdir()) == [pairs]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no rows"),
        ("{not json}", "line 1 is not JSON"),
        ('{"clean": "a"}', "column 'corrupted' is missing"),
        (json.dumps({**ROWS[0], "answer": 3}), "column 'answer' is 3; it must be text"),
        (json.dumps(ROWS[0]) + "\n[1]", "line 2 is a list"),
    ],
)
def test_bad_files_are_one_line_before_any_model(no_model, pairs, capsys, text, message):
    pairs.write_text(text, encoding="utf-8")
    code, out, err = patch(capsys, pairs, "--json")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_a_process_of_its_own(pairs, tmp_path):
    """The whole way once, with the model loaded by name."""
    words = [pairs, "--model", "tiny:llama3", "--out", tmp_path / "m.csv", "--json", "--n", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "tlkit.cli", "patch", *map(str, words)],
        capture_output=True, text=True, timeout=300, env={**os.environ, "TLKIT_PROGRESS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["out"] == str(tmp_path / "m.csv")
    assert "patching resid_pre" in done.stderr  # the bar
    assert len(pd.read_csv(tmp_path / "m.csv")) == LAYERS * LENGTH
