"""``tlkit pathways`` from files of questions to a page, a store, a table or a plan."""

import json

import pytest

from tlkit.cli.app import main

MODEL = ["--model", "tiny:llama", "--max-new-tokens", "4", "--folds", "2", "--seeds", "1"]
QUICK = [*MODEL, "--min-examples", "4", "--every", "2"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TLKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TLKIT_PROGRESS", "0")


@pytest.fixture
def qa(tmp_path, tiny_bridge):
    """Questions of which the tiny model answers about half right, by what it says."""
    from tlkit.prompts.judging import plain
    from tlkit.prompts.qa import QA
    from tlkit.studies.answers import answer

    rows = [
        {"question": f"What is the capital of {name}?", "answer": "zzz", "subject": name}
        for name in (f"{a}{b}" for a in ("Rome", "Paris", "Mary") for b in "abcdefgh")
    ]
    said = answer(tiny_bridge("llama"), QA.from_rows(rows), max_new_tokens=4, cache=False)
    for i, (row, one) in enumerate(zip(rows, said, strict=True)):
        words = [word for word in plain(one.text).split() if word not in plain(row["question"])]
        if i % 2 and words:
            row["answer"] = words[0]
    path = tmp_path / "capitals.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_a_page_has_every_reading_the_probes_and_the_answers(qa, tmp_path, capsys):
    page = tmp_path / "x.html"
    assert main(["pathways", "--qa", str(qa), "--out", str(page), *QUICK]) == 0
    text = page.read_text(encoding="utf-8")
    for title in ("Groups by verdict flip", "Groups found by other probes",
                  "Knockout at question and answer", "Patching at question and answer",
                  "What probes can tell", "Answers", "How it was run"):  # fmt: skip
        assert title in text
    said = capsys.readouterr()
    assert "capitals: " in said.out
    assert "of 24 right" in said.out
    assert "'capitals': 24 questions" in said.err


def test_a_store_is_kept_and_gone_on_with(qa, tmp_path, capsys):
    store = tmp_path / "x.zarr"
    command = [
        "pathways",
        "--qa",
        str(qa),
        "--out",
        str(store),
        "--parts",
        "intervention",
        *QUICK,
    ]
    assert main(command) == 0
    assert main(command) == 2
    assert "exists already" in capsys.readouterr().err
    assert main([*command, "--resume"]) == 0
    assert main([*command, "--overwrite"]) == 0
    assert main([*command, "--resume", "--seed", "3"]) == 2
    assert "holds another study" in capsys.readouterr().err


def test_json_is_one_object_with_rows_counts_and_reasons(qa, capsys):
    assert main(["pathways", "--qa", str(qa), "--json", *MODEL]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["answers"][0]["questions"] == 24
    assert {"reading", "dataset", "group", "layer", "delta_p", "n"} <= set(said["delta_p"][0])
    assert any("needs 30 right and 30 wrong" in reason for reason in said["reasons"])


def test_a_plan_and_a_table(qa, tmp_path, capsys):
    assert main(["pathways", "--qa", str(qa), "--plan", "--json", *QUICK]) == 0
    assert json.loads(capsys.readouterr().out)["plan"]["questions"] == {"capitals": 24}
    table = tmp_path / "x.csv"
    assert main(["pathways", "--qa", str(qa), "--out", str(table), *QUICK]) == 0
    assert table.read_text().startswith("reading,dataset,group,layer,delta_p,low,high,n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--plan"], "pathways needs --qa"),
        (["--qa", "QA"], "pathways needs --out"),
        (["--qa", "none.jsonl", "--plan"], "There is no file none.jsonl"),
        (["--qa", "QA", "--out", "x.png"], "must end in .html or .zarr or .csv"),
        (["--qa", "QA", "--qa", "QA", "--plan"], "Two files of --qa have one name"),
        (["--qa", "QA", "--plan", "--template", "Say"], "must hold {question} once"),
        (["--qa", "QA", "--plan", "--fields", "question=ask"], "column 'ask' is missing"),
        (["--qa", "QA", "--plan", "--budget", "much"], "A budget is a number of bytes"),
        (["--qa", "QA", "--plan", "--device", "moon"], "is not a device"),
        (["--qa", "QA", "--plan", "--parts", "all,more"], "Parts are group, intervention"),
        (["--qa", "QA", "--plan", "--n", "1"], "holds one question"),
        (["--qa", "QA", "--plan", "--model", "tiny:llama"], "--model names a model twice"),
    ],
)
def test_bad_requests_are_one_line(qa, capsys, words, message):
    words = [str(qa) if word == "QA" else word for word in words]
    assert main(["pathways", *words, "--model", "tiny:llama"]) == 2
    (line,) = [one for one in capsys.readouterr().err.splitlines() if one.startswith("tlkit:")]
    assert message in line


GIVEN = ["--answers", "given", "--folds", "2", "--seeds", "1", "--min-examples", "4"]


@pytest.fixture
def sets(tmp_path):
    """Two files of our own questions."""
    from tlkit.prompts.samples import questions

    rows = questions()
    paths = []
    for name, some in (("first", rows[::6]), ("second", rows[1::9])):
        paths.append(tmp_path / f"{name}.jsonl")
        text = "".join(json.dumps(row) + "\n" for row in some)
        paths[-1].write_text(text, encoding="utf-8")
    return [word for path in paths for word in ("--qa", str(path))]


def test_several_models_and_sets_are_one_figure_and_one_store(sets, tmp_path, capsys):
    models = ["--model", "tiny:llama", "--model", "tiny:gpt2"]
    store = tmp_path / "x.zarr"
    command = ["pathways", *sets, *models, *GIVEN, "--parts", "group", "--out", str(store)]
    assert main(command) == 0
    assert "tiny:llama, first: " in capsys.readouterr().out
    assert main([*command, "--resume"]) == 0
    import tlkit as tk

    found = tk.open(store)
    assert dict(found.sizes)["model"] == 2
    assert found["dataset"].values.tolist() == ["first", "second"]
    page = tmp_path / "x.html"
    assert main([*command[:-1], str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "Groups by verdict flip: control" in text
    assert "first, Q-anchored (n = " in text


def test_all_parts_have_a_section_each(sets, tmp_path, capsys):
    page = tmp_path / "x.html"
    command = ["pathways", *sets[:2], "--model", "tiny:llama", *GIVEN, "--parts", "all"]
    assert main([*command, "--max-new-tokens", "3", "--out", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    for title in ("By layer and window", "Probes by layer, site and position", "Replaced tokens",
                  "What the groups know", "Detectors of wrong answers", "Saliency"):  # fmt: skip
        assert title in text
    said = capsys.readouterr().out
    assert "mop_random_gate" in said
    assert "exact question" in said


def test_a_plan_needs_a_config_alone(sets, tmp_path, capsys):
    from tlkit.models.tiny import tiny, tiny_tokenizer

    folder = tmp_path / "Small-Model"
    tiny("llama").config.save_pretrained(folder)
    command = ["pathways", *sets, "--model", str(folder), "--plan", "--json"]
    assert main(command) == 0
    alone = json.loads(capsys.readouterr().out)["plan"]
    assert alone["weight_bytes"] > 0
    assert not alone["tokens_known"]
    assert main([*command, "--model", "tiny:llama"]) == 0
    both = json.loads(capsys.readouterr().out)["plan"]
    assert set(both) == {"Small-Model", "tiny:llama"}
    assert both["Small-Model"] == {**alone, "seconds": both["Small-Model"]["seconds"]}
    tiny_tokenizer().save_pretrained(folder)
    assert main([*command[:-2], "--out", str(tmp_path / "x.html")]) == 2
    assert "has a config.json but no weights" in capsys.readouterr().err
