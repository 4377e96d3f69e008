"""Faults to plant: slice the ids but not the alignment; hash without the answers; let a pair of
unequal length map by position."""

import copy
import dataclasses
import pickle

import pytest

from tlkit.errors import SpecError
from tlkit.prompts.prompts import Prompts
from tlkit.prompts.spans import Span

CLEAN = ["The capital of Italy is", "The capital of France is", "the cat sat in Paris"]
CORRUPTED = ["The capital of France is", "The capital of Bulgaria is", "the dog sat in Rome"]
ANSWERS, WRONG = ["Rome", "Paris", "yes"], ["Paris", "Sofia", "no"]


@pytest.fixture
def pairs(tiny):
    spans = {"subject": ["Italy", "France", "cat"], "verb": [None, None, (8, 11)]}
    return Prompts.from_pairs(tiny, CLEAN, CORRUPTED, ANSWERS, WRONG, spans)


def hf(tokenizer, text):
    return tuple(tokenizer(text)["input_ids"])


def test_pairs_hold_hugging_faces_ids(tiny, pairs):
    assert pairs.ids("clean") == pairs.clean == tuple(hf(tiny, text) for text in CLEAN)
    assert pairs.ids("corrupted") == tuple(hf(tiny, text) for text in CORRUPTED)
    for rows, given in ((pairs.answers, ANSWERS), (pairs.wrong_answers, WRONG)):
        for row, text, answer in zip(rows, CLEAN, given, strict=True):
            assert hf(tiny, text) + row == hf(tiny, f"{text} {answer}")
    assert [len(row) for row in pairs.wrong_answers] == [1, 6, 1]  # " Sofia" is six bytes
    assert (pairs.clean_texts, pairs.corrupted_texts) == (tuple(CLEAN), tuple(CORRUPTED))
    assert pairs.clean_tokens[0][0] == "<bos>"


def test_spans_decode_to_their_words(tiny, pairs):
    for side, texts in (("spans", CLEAN), ("corrupted_spans", CORRUPTED)):
        rows = pairs.ids("clean" if side == "spans" else "corrupted")
        words = [" Italy", " France", " cat"] if side == "spans" else None
        words = words or [" France", " Bulgaria", " dog"]
        for row, span, word in zip(rows, getattr(pairs, side)["subject"], words, strict=True):
            assert tiny.decode(list(row[slice(*span)])) == word
        assert len(texts) == len(rows)
    assert pairs.spans["verb"][:2] == pairs.corrupted_spans["verb"][:2] == (None, None)


def test_unequal_pairs_are_aligned_and_shown(tiny, pairs):
    # "<bos> The capital of France is" against Bulgaria in nine byte tokens.
    length = len(pairs.corrupted[1])
    assert length == len(pairs.clean[1]) + 8
    assert pairs.alignment[1] == (0, 1, 2, 3, *[-1] * 8, 4, 5)
    assert pairs.differing(1) == list(range(4, 13))
    clean, corrupted = pairs.show_alignment(1, width=200).splitlines()
    assert clean.split()[1:] == ["<bos>", "The", "capital", "of", *"·" * 8, "France", "is"]
    assert "".join(corrupted.split()[5:-1]) == "Bulgaria"
    column = {word: clean.index(f" {word}") for word in ("capital", "of", "France", "is")}
    assert [corrupted[at:][:3].strip() for at in column.values()] == ["ca", "of", "a", "is"]


def test_equal_pairs_are_the_identity(pairs):
    for example in (0, 2):
        assert pairs.alignment[example] == tuple(range(len(pairs.clean[example])))
    assert pairs.differing(0) == [4]
    assert [pairs.corrupted_tokens[2][i].strip() for i in pairs.differing(2)] == ["dog", "Rome"]


def test_lengths_that_differ_either_way_leave_cells_unmapped():
    """Eight tokens against six: nothing is shifted, nothing is invented."""
    long, short = [1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 9, 6, 7, 8]
    prompts = Prompts.from_tokens([long, short], [short, long])
    assert prompts.alignment == ((0, 1, -1, 5, 6, 7), (0, 1, -1, -1, -1, 3, 4, 5))
    assert prompts.differing(0) == [2]
    assert prompts.differing(1) == [2, 3, 4]


def test_an_unmapped_position_differs_whatever_token_it_has():
    # 8 stands in the middle of one prompt and at the end of both.
    prompts = Prompts.from_tokens([[1, 2, 8]], [[1, 8, 5, 2, 8]])
    assert prompts.alignment == ((0, -1, -1, 1, 2),)
    assert prompts.differing(0) == [1, 2]


def test_fewer_examples_are_the_same_examples(tiny, pairs):
    for index, one in enumerate(pairs):
        spans = {
            "subject": [["Italy", "France", "cat"][index]],
            "verb": [[None, None, (8, 11)][index]],
        }
        alone = Prompts.from_pairs(
            tiny,
            [CLEAN[index]],
            [CORRUPTED[index]],
            [ANSWERS[index]],
            [WRONG[index]],
            spans,
        )
        assert one == alone == pairs[index] == pairs[index - 3]
        assert one.hash() == alone.hash()
    assert len(list(pairs)) == len(pairs) == 3
    assert pairs[1:] == pairs[[1, 2]] == pairs[[False, True, True]]
    assert pairs[::-1][0] == pairs[2]
    with pytest.raises(IndexError, match="There is no example 3; there are 3"):
        pairs[3]


def test_the_hash_is_of_the_ids(tiny, pairs):
    same = Prompts.from_tokens(pairs.clean, pairs.corrupted, pairs.answers, pairs.wrong_answers)
    assert same.hash() == pairs.hash()
    assert len(pairs.hash()) == 64
    others = [
        dataclasses.replace(pairs, wrong_answers=None),
        dataclasses.replace(pairs, answers=pairs.wrong_answers, wrong_answers=pairs.answers),
        dataclasses.replace(pairs, clean=pairs.corrupted, corrupted=pairs.clean),
        pairs[::-1],
    ]
    hashes = {prompts.hash() for prompts in [pairs, *others]}
    assert len(hashes) == 5
    assert len({pairs, same, pairs[:]}) == 2  # `same` has no spans, so it is not equal
    # Rows must not run into one another.
    assert Prompts.from_tokens([[1, 2], [3]]).hash() != Prompts.from_tokens([[1], [2, 3]]).hash()


def test_prompts_can_be_copied_and_sent(pairs):
    assert copy.deepcopy(pairs) == pairs == pickle.loads(pickle.dumps(pairs))
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign"):
        pairs.clean = ()


def test_texts_need_no_twins(tiny):
    prompts = Prompts.from_texts(
        tiny, CLEAN, ["Rome", " Paris", "no"], spans={"x": ["Italy", "of", None]}
    )
    assert prompts.clean == tuple(hf(tiny, text) for text in CLEAN)
    assert prompts.spans["x"] == (Span(4, 5), Span(3, 4), None)
    assert (prompts.corrupted, prompts.alignment, prompts.wrong_answers) == (None, None, None)
    assert prompts[1:].clean == prompts.clean[1:]
    for ask in (prompts.ids, prompts.labels):
        with pytest.raises(SpecError, match="have no corrupted side; make them with from_pairs"):
            ask("corrupted")
    for ask in (prompts.differing, prompts.show_alignment):
        with pytest.raises(SpecError, match="have no corrupted side"):
            ask(0)


def test_ids_are_taken_as_they_are(tiny):
    text = "a the cat<eos>"
    ids = [7, 0, 0, *tiny(text)["input_ids"]]
    prompts = Prompts.from_tokens([ids], model=tiny)
    assert prompts.clean == (tuple(ids),)
    assert prompts.tokenizer_hash == Prompts.from_texts(tiny, [text]).tokenizer_hash != ""
    assert Prompts.from_tokens([ids]).tokenizer_hash == ""
    # Their text would be read as other ids; they are never read again.
    assert tiny(tiny.decode(ids))["input_ids"] != ids
    same = Prompts.from_tokens([ids], [ids])
    assert same.differing(0) == []


def test_positions_are_named(pairs):
    names = ("<bos>", "The", " capital", " of", "<subject>", " is")
    assert pairs[:2].labels("clean") == names
    assert pairs[0].labels() == pairs[0].corrupted_tokens[0]


def test_chat_prompts_end_where_the_model_answers(smol):
    texts = ["What is the capital of Italy?", "user"]
    prompts = Prompts.from_texts(smol, texts, ["Rome", " me"], spans={"all": texts}, chat=True)
    for text, row, answer, span in zip(
        texts, prompts.clean, prompts.answers, prompts.spans["all"], strict=True
    ):
        message = [{"role": "user", "content": text}]
        expected = smol.apply_chat_template(
            message, tokenize=True, add_generation_prompt=True, return_dict=False
        )
        assert list(row) == expected
        assert row[0] == smol.bos_token_id != row[1]
        assert smol.decode(list(row[slice(*span)])) == text
        assert smol.decode(list(answer)) == {"user": " me"}.get(text, "Rome")
    assert prompts.clean_texts == tuple(texts) and prompts.chat


def test_a_model_and_its_tokenizer_make_the_same_prompts(tiny_bridge):
    for family in ("gpt2", "llama3"):
        model = tiny_bridge(family)
        from_model = Prompts.from_texts(model, CLEAN, ANSWERS)
        assert from_model == Prompts.from_texts(model.tokenizer, CLEAN, ANSWERS)
        bos = [row.count(model.tokenizer.bos_token_id) for row in from_model.clean]
        assert bos == [1, 1, 1]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"corrupted": CORRUPTED[:2]}, "corrupted has 2 entries for 3 prompts"),
        ({"answers": []}, "answers has 0 entries for 3 prompts"),
        ({"answers": ["x", "", "y"]}, r"answers\[1\] is empty"),
        ({"wrong_answers": ["x"]}, "wrong_answers has 1 entries for 3 prompts"),
        ({"wrong_answers": ["Tom", " Paris", "x"]}, "Example 1: the answer and the wrong answer"),
        ({"corrupted": [*CORRUPTED[:2], CLEAN[2]]}, "Example 2: nothing differs"),
        ({"clean": [CLEAN[0], " ", CLEAN[2]]}, r"clean\[1\] is empty"),
        ({"spans": {"who": ["Italy"]}}, r"spans\['who'\] has 1 entries for 3 prompts"),
        ({"spans": {"who": ["Italy", None, (9, 99)]}}, "Example 2.*9 to 99 lie outside the text"),
        ({"corrupted_spans": {"who": [None] * 3}}, "corrupted_spans names 'who'"),
    ],
)
def test_bad_pairs_are_refused_in_one_sentence(tiny, change, says):
    good = {"clean": CLEAN, "corrupted": CORRUPTED, "answers": ANSWERS, "wrong_answers": WRONG}
    with pytest.raises(SpecError, match=says) as caught:
        Prompts.from_pairs(tiny, **{**good, **change})
    assert "\n" not in str(caught.value)
