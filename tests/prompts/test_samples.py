"""The sample data keeps what docs/samples.md promises."""

import ast
import hashlib
import operator
import os
import re
import subprocess
import sys
import unicodedata
from collections import Counter, defaultdict
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from tlkit.errors import SpecError
from tlkit.prompts import samples
from tlkit.prompts.samples.grammar import Grammar

FOLDER = Path(samples.__file__).parent
BUILD = Path(__file__).parents[2] / "scripts" / "samples" / "build.py"
# The version and the checksum of its SHA256SUMS. Data that changes needs a new version.
RELEASE = ("1.0.0", "6aa121b8b65051727673aa23f6129e8fbf2c44640942efaeff144796705d2c0c")
SIGNS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
EQUATION = re.compile(r"(\d+) ([-+×÷]) (\d+) = (\d+)")  # noqa: RUF001
LOADERS = ("questions", "pairs", "word_problems", "requests", "documents")


def words(text):
    """The words of a text as a judge of answers compares them: no case, accents or marks."""
    plain = unicodedata.normalize("NFKD", text).casefold()
    plain = "".join(letter for letter in plain if not unicodedata.combining(letter))
    return " ".join(["", *re.findall(r"\w+", plain), ""])


def value(node):
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return Fraction(node.value)
    assert isinstance(node, ast.BinOp), ast.dump(node)
    return SIGNS[type(node.op)](value(node.left), value(node.right))


def auc(scores, positive):
    """The chance that a positive scores above a negative, ties counting half."""
    scores, positive = np.asarray(scores), np.asarray(positive)
    gaps = scores[positive][:, None] - scores[~positive][None, :]
    return float(np.mean(np.sign(gaps) / 2 + 0.5))


def test_files_have_the_checksums_of_this_version():
    listed = (FOLDER / "SHA256SUMS").read_bytes()
    assert (samples.VERSION, hashlib.sha256(listed).hexdigest()) == RELEASE
    for line in listed.decode().splitlines():
        checksum, name = line.split()
        assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == checksum, name


@pytest.mark.skipif(not BUILD.exists(), reason="the scripts are not in this installation")
def test_building_again_gives_the_same_bytes(tmp_path):
    root = str(BUILD.parents[2])
    subprocess.run(
        [sys.executable, str(BUILD), str(tmp_path)],
        check=True,
        env={**os.environ, "PYTHONPATH": root, "PYTHONHASHSEED": "7"},
    )
    built = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert len(built) == 6
    for name, content in built.items():
        assert content == (FOLDER / name).read_bytes(), name


@pytest.mark.parametrize("name", LOADERS)
def test_ids_differ_and_no_field_is_empty(name):
    rows = getattr(samples, name)()
    assert len({row["id"] for row in rows}) == len(rows)
    text = {"pairs": "clean", "requests": "prompt", "documents": "text"}.get(name, "question")
    assert len({words(row[text]) for row in rows}) == len(rows)
    assert all(field not in ("", [], None) for row in rows for field in row.values())
    assert samples.path(name).is_file()


def test_questions_state_their_subject_once_and_never_their_answer():
    rows = samples.questions()
    assert len(rows) >= 400
    relations = Counter(row["relation"] for row in rows)
    assert len(relations) >= 8
    assert min(relations.values()) >= 30
    for row in rows:
        question, (start, stop) = row["question"], row["subject_span"]
        assert question[start:stop] == row["subject"]
        assert question.count(row["subject"]) == 1
        assert row["answer_aliases"][0] == row["answer"]
        for alias in row["answer_aliases"]:
            assert words(alias) not in words(question), row["id"]
            assert len(alias) < 3 or words(alias).strip() not in words(question), row["id"]


def test_pairs_have_equal_lengths_and_single_token_answers(embedded):
    def ids(text):
        return embedded.tokenizer(text, add_special_tokens=False).input_ids

    rows = samples.pairs()
    kinds = Counter(row["kind"] for row in rows)
    assert len(rows) >= 60
    assert len(kinds) >= 5
    assert min(kinds.values()) >= 10
    for row in rows:
        clean, corrupted = ids(row["clean"]), ids(row["corrupted"])
        assert len(clean) == len(corrupted), row["id"]
        assert clean != corrupted
        for answer in (row["answer"], row["wrong_answer"]):
            # Joined to either prompt, the answer is one token and merges with nothing.
            assert ids(row["clean"] + answer)[:-1] == clean, row["id"]
            assert ids(row["corrupted"] + answer)[:-1] == corrupted, row["id"]
            assert ids(answer) == ids(row["clean"] + answer)[-1:]
        if "subject" in row:
            for side, text in (("subject", "clean"), ("corrupted_subject", "corrupted")):
                start, stop = row[f"{side}_span"]
                assert row[text][start:stop] == row[side]


@pytest.mark.slow
def test_the_embedded_model_gets_the_clean_side_right_and_changes_its_mind(embedded):
    def ids(row, *fields):
        texts = [row[field] for field in fields]
        return embedded.tokenizer(texts, add_special_tokens=False).input_ids

    by_length = defaultdict(list)
    for row in samples.pairs():
        sides = ids(row, "clean", "corrupted")
        by_length[len(sides[0])].append((row["id"], sides, ids(row, "answer", "wrong_answer")))
    margins = {}
    for group in by_length.values():
        tokens = torch.tensor([sides for _, sides, _ in group]).flatten(0, 1)
        with torch.no_grad():
            logits = embedded.original_model(tokens, logits_to_keep=1).logits
        for (name, _, ((answer,), (wrong,))), pair in zip(group, logits.split(2), strict=True):
            margins[name] = (pair[:, -1, answer] - pair[:, -1, wrong]).tolist()
    # Half a logit and more: batch shape alone moves logits by 4e-5, bf16 by some hundredths.
    assert {name: margin for name, margin in margins.items() if margin[0] < 0.5} == {}
    assert {name: margin for name, margin in margins.items() if margin[1] > -0.5} == {}


def test_word_problems_have_the_answers_of_their_expressions():
    rows = samples.word_problems()
    assert len(rows) >= 80
    for row in rows:
        expected = value(ast.parse(row["expression"], mode="eval").body)
        assert row["answer"] == str(expected)
        assert expected > 0
        assert row["answer"].isdigit()
        assert f"The answer is {row['answer']} " in row["solution"]
        assert "\n" not in row["solution"]
        steps = EQUATION.findall(row["solution"])
        assert len(steps) == row["steps"]
        assert steps[-1][-1] == row["answer"]
        for left, sign, right, result in steps:
            kinds = dict(zip("+-×÷", SIGNS.values(), strict=True))  # noqa: RUF001
            assert kinds[sign](Fraction(left), Fraction(right)) == int(result), row["id"]


def test_every_number_of_a_word_problem_is_said_in_it():
    known = {"7", "24", "60", "100", "1"}  # days, hours, minutes, per cent
    spoken = {"two": "2", "three": "3", "twice": "2", "both": "2", "third": "3"}
    spoken |= {"half": "2", "quarter": "4", "seven": "7", "square": "4", "fence": "2"}
    spoken |= {"sixth": "6", "seventh": "7", "same": "2"}
    for row in samples.word_problems():
        said = set(re.findall(r"\d+", row["question"])) | known
        said |= {spoken[word] for word in words(row["question"]).split() if word in spoken}
        assert set(re.findall(r"\d+", row["expression"])) <= said, row["id"]


def test_requests_are_split_by_topic_and_share_their_frames():
    rows = samples.requests()
    labels = Counter(row["label"] for row in rows)
    assert set(labels) == {"harmless", "refuse"}
    assert min(labels.values()) >= 120
    assert len({(row["topic"], row["split"], row["label"]) for row in rows}) == len(
        {row["topic"] for row in rows}
    )
    assert {row["split"] for row in rows} == {"train", "test"}
    frames = Counter((row["frame"], row["label"]) for row in rows)
    for frame in {row["frame"] for row in rows}:
        assert abs(frames[frame, "harmless"] - frames[frame, "refuse"]) <= 1
    assert all("\n" not in row["prompt"] and len(row["prompt"]) < 140 for row in rows)


def test_neither_length_nor_words_tell_the_requests_apart():
    rows = samples.requests()
    refuse = np.array([row["label"] == "refuse" for row in rows])
    prompts = np.array([row["prompt"] for row in rows])
    test = np.array([row["split"] == "test" for row in rows])
    for size in (len, lambda prompt: len(prompt.split())):
        assert 0.4 < auc([size(prompt) for prompt in prompts], refuse) < 0.6
    assert auc(naive_bayes(prompts[~test], refuse[~test], prompts[test]), refuse[test]) < 0.8


def naive_bayes(prompts, positive, others):
    """How much likelier each of `others` is among the positive prompts, word by word."""
    counts = [Counter(words(" ".join(prompts[mask])).split()) for mask in (positive, ~positive)]
    totals = [sum(count.values()) for count in counts]
    return [
        sum(
            np.log((counts[0][word] + 1) / totals[0]) - np.log((counts[1][word] + 1) / totals[1])
            for word in words(other).split()
        )
        for other in others
    ]


def test_training_requests_keep_away_from_the_test_topics():
    rows = samples.training_requests(0, 3000)
    assert rows == samples.training_requests(0, 3000)
    assert rows != samples.training_requests(1, 3000)
    assert len({row["prompt"] for row in rows}) == 3000
    assert Counter(row["label"] for row in rows) == {"harmless": 1500, "refuse": 1500}
    held_out = [row for row in samples.requests() if row["split"] == "test"]
    assert {row["topic"] for row in rows}.isdisjoint({row["topic"] for row in held_out})
    assert {row["prompt"] for row in rows}.isdisjoint({row["prompt"] for row in held_out})
    frames = {
        label: {r["frame"] for r in rows if r["label"] == label} for label in ("harmless", "refuse")
    }
    assert frames["harmless"] == frames["refuse"]
    refuse = [row["label"] == "refuse" for row in rows]
    assert 0.4 < auc([len(row["prompt"]) for row in rows], refuse) < 0.6
    assert not any("{" in row["prompt"] for row in rows)


def test_training_requests_take_any_share_and_refuse_what_cannot_be_made(monkeypatch):
    rows = samples.training_requests(3, 40, refuse=0.25)
    assert Counter(row["label"] for row in rows) == {"harmless": 30, "refuse": 10}
    assert samples.training_requests(3, 0) == []
    with pytest.raises(SpecError, match="refuse between 0 and 1"):
        samples.training_requests(0, 10, refuse=2.0)
    monkeypatch.setattr("tlkit.prompts.samples.training._PATIENCE", 1)
    with pytest.raises(SpecError, match="ask for fewer"):
        samples.training_requests(0, 100_000)


def test_a_grammar_uses_up_its_texts_and_names_what_it_lacks():
    grammar = Grammar("count: {3..5}\nday: one | two | three\nwish: {moon}", seed=0)
    assert sorted(grammar.draw("day") for _ in range(3)) == ["one", "three", "two"]
    assert {grammar.draw("count") for _ in range(50)} == {"3", "4", "5"}
    with pytest.raises(SpecError, match="no symbol 'moon'"):
        grammar.draw("wish")


def test_documents_are_long_and_never_say_a_sentence_twice(embedded):
    rows = samples.documents()
    assert len({row["kind"] for row in rows}) == 4
    for row in rows:
        text = row["text"]
        assert len(embedded.tokenizer(text, add_special_tokens=False).input_ids) >= 6000
        assert len(text.encode()) < 60_000
        assert text.startswith(row["title"])
        assert not re.search(r"[{}#|]|\.\.|  ", text)
        said = [part for part in re.split(r"(?<=[.?!])\s+", text) if len(part.split()) >= 5]
        assert len(set(said)) == len(said)
        plain = text.split()
        runs = [tuple(plain[at : at + 8]) for at in range(len(plain) - 7)]
        assert len(set(runs)) > 0.88 * len(runs)


@pytest.mark.slow
def test_the_embedded_model_knows_about_half_of_the_answers(embedded):
    """Two questions a relation, greedily; all were measured for the datasheet."""
    random = np.random.default_rng(0)
    by_relation = defaultdict(list)
    for row in samples.questions():
        by_relation[row["relation"]].append(row)
    rows = [
        by_relation[name][i]
        for name in sorted(by_relation)
        for i in random.choice(len(by_relation[name]), 2, replace=False)
    ]
    answers = greedy(embedded, [row["question"] for row in rows])
    right = [
        any(words(alias) in words(answer) for alias in row["answer_aliases"])
        for row, answer in zip(rows, answers, strict=True)
    ]
    assert 0.3 < np.mean(right) < 0.8


def greedy(bridge, questions):
    """What the underlying model answers, 20 new tokens at most."""
    tokenizer, model = bridge.tokenizer, bridge.original_model
    chats = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True
        )
        for question in questions
    ]
    batch = tokenizer(
        chats, return_tensors="pt", padding=True, padding_side="left", add_special_tokens=False
    )
    with torch.no_grad():
        made = model.generate(
            **batch, max_new_tokens=20, do_sample=False, pad_token_id=tokenizer.pad_token_id
        )
    return tokenizer.batch_decode(made[:, batch.input_ids.shape[1] :], skip_special_tokens=True)
