"""Promise: every input is used, or refused in one sentence; no row goes missing without a count.

Hypothesis draws the inputs: 200 of them in `make test`, 10 000 in `make faults`.
"""

import json

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tlkit as tk
from tlkit.cli.app import main
from tlkit.errors import SpecError
from tlkit.models.tiny import tiny_tokenizer
from tlkit.prompts.pairs import pairs_from_jsonl
from tlkit.prompts.read import LONGEST_LINE, read_jsonl
from tlkit.prompts.spans import characters

TOKENIZER = tiny_tokenizer()
TEXT = st.text(max_size=30) | st.sampled_from(
    ["The cat sat in Rome", "Mary", "", " ", "\u202e", "a"]
)
VALUE = st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.lists(TEXT, max_size=3)
KEYS = st.sampled_from([
    "clean", "corrupted", "answer", "wrong_answer", "subject", "question", "answer_aliases",
    "subject_span", "id", "text",
])  # fmt: skip
ANY_ROW = st.dictionaries(KEYS | TEXT, VALUE, max_size=6).map(json.dumps)
PAIR = st.fixed_dictionaries(
    {name: TEXT for name in ("clean", "corrupted", "answer", "wrong_answer")},
    optional={"subject": VALUE},
).map(json.dumps)  # fmt: skip
QUESTION = st.fixed_dictionaries(
    {"question": TEXT, "answer": VALUE},
    optional={"answer_aliases": VALUE, "subject": TEXT, "subject_span": VALUE},
).map(json.dumps)  # fmt: skip
GOOD = st.sampled_from([
    json.dumps({"clean": "A cat", "corrupted": "A dog", "answer": "a", "wrong_answer": "b"}),
    json.dumps({"question": "Who?", "answer": "Mary"}),
])  # fmt: skip
LINE = (PAIR | QUESTION | GOOD | ANY_ROW | TEXT).map(str.encode) | st.binary(max_size=40)
LINES = st.lists(LINE, max_size=5).map(b"\n".join)
ALIKE = st.lists(GOOD | PAIR, max_size=4) | st.lists(GOOD | QUESTION, max_size=4)
FILES = LINES | ALIKE.map("\n".join).map(lambda text: text.encode("utf-8", "surrogatepass"))
BLANK = "\ufeff \t\r\n\x0b\x0c\x1c\x1d\x1e\x1f\x85\u2028\u2029\xa0"
DOCUMENTED = {"alias inside its question", "alias without words"}


def campaign(test):
    """The same test twice: a handful always, the whole campaign when asked for."""
    relaxed = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None}
    few = settings(max_examples=200, derandomize=True, **relaxed)(given(**test.draws)(test))
    many = settings(max_examples=10_000, **relaxed)(given(**test.draws)(test))
    return few, pytest.mark.campaign(many)


def draws(**strategies):
    def mark(test):
        test.draws = strategies
        return test

    return mark


def sentence(error):
    text = str(error)
    assert text.strip()
    assert "Traceback" not in text
    assert len(text) < 1500
    return text


@draws(data=FILES)
def rows_are_used_or_told(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "fuzzed.jsonl"
    path.write_bytes(data)
    filled = [line for line in data.split(b"\n") if line.decode("utf-8", "replace").strip(BLANK)]
    try:
        prompts = pairs_from_jsonl(TOKENIZER, path)
        assert len(prompts) == len(filled)
    except SpecError as error:
        assert str(path) in sentence(error)
    try:
        questions = tk.QA.from_jsonl(path)
        lost = sum(n for reason, n in questions.dropped.items() if reason not in DOCUMENTED)
        assert len(questions) + lost == len(filled)
    except SpecError as error:
        assert str(path) in sentence(error)
    for required in (("text",), {"prompt": str, "label": (str, int)}):
        try:
            assert len(read_jsonl(path, required=required)) == len(filled)
        except SpecError as error:
            assert str(path) in sentence(error)


EDGE = st.integers(-3, 25) | st.none() | st.text(max_size=4) | st.floats()
SPAN = st.tuples(EDGE, EDGE) | st.lists(EDGE, max_size=3) | st.text(max_size=5) | st.none() | EDGE


@draws(text=st.text(min_size=1, max_size=20), span=SPAN)
def spans_cover_what_is_asked_or_are_told(text, span):
    try:
        asked = characters(span, text, "This span")
        # Beyond this point only what the signature promises to take, which tests hold callers to.
        if isinstance(span, list):
            span = asked
        prompts = tk.Prompts.from_texts(TOKENIZER, [text], spans={"s": [span]})
    except SpecError as error:
        sentence(error)
        return
    found = prompts.spans["s"][0]
    if span is None:
        assert found is None
        return
    start, stop = (
        (text.index(span), text.index(span) + len(span)) if isinstance(span, str) else span
    )
    covered = TOKENIZER.decode(prompts.clean[0][found.start : found.stop])
    assert found.start < found.stop <= len(prompts.clean[0])
    if text.isascii():
        assert text[start:stop].strip() in covered


test_rows_are_used_or_told, test_10_000_files = campaign(rows_are_used_or_told)
test_spans_cover_what_is_asked, test_10_000_spans = campaign(spans_cover_what_is_asked_or_are_told)


# Promise: empty and huge files end with 2 and one plain line, before a model is loaded.

COMMANDS = {
    "patch": ["patch", "{}"], "pathways": ["pathways", "--qa", "{}"],
    "conditions": ["conditions", "--prompts", "{}", "--insert", "x=/ "],
    "variance": ["variance", "--documents", "{}"], "ablate": ["ablate", "--prompts", "{}"],
    "probe": ["probe", "--prompts", "{}", "--positive", "a"], "explore": ["explore", "{}"],
    "abliterate": ["abliterate", "--harmful", "{}", "--harmless", "{}"],
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "content", [b"", b"\n \n", b"\0\0\0\0", b"[1, 2]\n", b'{"a": ', b"\xff\xfe"]
)
def test_a_file_of_nothing_is_refused(command, content, tmp_path, capsys):
    path = tmp_path / "file.jsonl"
    path.write_bytes(content)
    words = [word.replace("{}", str(path)) for word in COMMANDS[command]]
    code = main([*words, "--model", "tiny:llama3", "--json"])
    out, err = capsys.readouterr()
    assert (code, out) == (2, ""), err
    assert err.count("\n") == 1
    assert "file.jsonl" in err


def test_a_line_without_end_is_not_read_into_memory(tmp_path):
    path = tmp_path / "long.jsonl"
    with path.open("wb") as file:
        file.truncate(LONGEST_LINE + 100)  # zeros that take no room
    with pytest.raises(SpecError, match="longer than 64 MiB"):
        pairs_from_jsonl(TOKENIZER, path)


def test_prompts_longer_than_the_model_are_told(tiny_bridge):
    model = tiny_bridge("llama3")
    long = tk.Prompts.from_texts(model, ["a " * 5000])
    with pytest.raises(SpecError, match=r"has \d+ tokens; the model was made for 128"):
        tk.run(model, long, tk.Sweep(tk.Ablate(tk.Site("z")), layer=[0]), tk.LogitDiff())


# Requests that cannot be: each in one sentence, before the model runs.


@pytest.fixture
def pair(tiny_bridge):
    return tk.Prompts.from_tokens([[1, 2, 3, 4]], [[1, 2, 9, 4]], [[7]], [[8]])


def test_positions_that_no_prompt_has_are_told(tiny_bridge, pair):
    sweep = tk.Sweep(tk.Knockout(keys=(100,)), layers=[(0,), (1,)])
    with pytest.raises(
        SpecError, match=r"No prompt has .*keys=\(100,\).*the prompts have 4 tokens"
    ):
        tk.run(tiny_bridge("llama3"), pair, sweep, tk.LogitDiff())


def test_a_budget_that_no_prompt_fits_into_is_told(tiny_bridge, pair):
    sweep = tk.Sweep(tk.Patch(tk.Site("z")), layer=[0])
    with pytest.raises(SpecError, match="budget='1B' is too small: one prompt of 4 tokens takes"):
        tk.run(tiny_bridge("llama3"), pair, sweep, tk.LogitDiff(), budget="1B")


def test_a_direction_of_another_width_is_told(tiny_bridge, pair):
    for make in (tk.Project, tk.Steer):
        sweep = tk.Sweep(make(tk.Site("resid_pre"), torch.ones(7)), layer=[0])
        with pytest.raises(SpecError, match=r"a direction of 7 numbers; the stream of .* has 64"):
            tk.run(tiny_bridge("llama3"), pair, sweep, tk.LogitDiff())


@pytest.mark.parametrize("seed", [-1, -(10**9)])
def test_a_seed_that_is_none_is_told(tiny_bridge, pair, seed):
    sweep = tk.Sweep(tk.Patch(tk.Site("z")), layer=[0])
    with pytest.raises(SpecError, match="is no seed"):
        tk.run(tiny_bridge("llama3"), pair, sweep, tk.LogitDiff(), seed=seed)
    with pytest.raises(SpecError, match="is no seed"):
        tk.pathways.run(tiny_bridge("llama3"), tk.pathways.own_questions(8), seed=seed)


@pytest.mark.parametrize("model", ["./nosuch", "nosuch/", "nosuch.gguf", "a b", "tiny:nosuch"])
def test_nothing_is_said_to_be_loading_that_is_not_there(model, capsys):
    code = main(["check", "--model", model])
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.count("\n") == 1 or model.startswith("tiny:")


def test_missing_weights_are_told_before_a_missing_tokenizer(tmp_path):
    from tlkit.models.tiny import tiny

    tiny("llama3").config.save_pretrained(tmp_path)
    with pytest.raises(SpecError, match="no weights"):
        tk.HookedTransformer.from_pretrained(tmp_path)
