"""Faults to plant: tokenise the answer without its prompt; put BOS before a text that has one;
count a span from the rendered text's start; let a span end one token early."""

import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tlkit.errors import SpecError
from tlkit.prompts.spans import Span
from tlkit.prompts.tokens import (
    answer_tokens,
    continuation,
    span_tokens,
    tokenize,
    tokenizer_of,
    with_one_bos,
)

TEXTS = [
    "The capital of France is",
    "  two  spaces and a line end\n\n",
    "東京は日本の首都",
    "e\u0301 é ñ n\u0303",
    "👩‍👩‍👧 and 🏳️‍🌈, 👍🏽!",
    "ﷺ ﬁ ½ \u200b\u00a0x",
    "a.\n\nPab  b",
]


def byte_ranges(tokenizer, ids):
    """The bytes that each byte-level token stands for, by walking over the tokens' letters."""
    at, ranges = 0, []
    for token in tokenizer.convert_ids_to_tokens(list(ids)):
        ranges.append((at, at + len(token)))
        at += len(token)
    return ranges


def touched_by_bytes(tokenizer, text, ids, start, stop):
    """Which tokens hold a byte of the characters from start to stop: without any offsets."""
    first, last = len(text[:start].encode()), len(text[:stop].encode())
    ranges = byte_ranges(tokenizer, ids)
    hit = [i for i, (left, right) in enumerate(ranges) if left < last and first < right]
    return Span(hit[0], hit[-1] + 1)


def own(tokenizer, prompt):
    """A prompt's ids without BOS, and how many ids BOS takes."""
    skip = int(tokenizer.bos_token_id == prompt.ids[0])
    return prompt.ids[skip:], skip


@pytest.mark.parametrize("name", ["tiny", "smol", "trimmed", "pieces"])
def test_ids_are_those_of_hugging_faces_own_call(name, request):
    tokenizer = request.getfixturevalue(name)
    for text in TEXTS:
        prompt = tokenize(tokenizer, text, chat=False)
        assert list(prompt.ids) == tokenizer(text)["input_ids"]
        assert prompt.ids.count(tokenizer.bos_token_id) == (0 if name == "smol" else 1)


@pytest.mark.parametrize("name", ["tiny", "smol"])
def test_chat_ids_are_those_of_hugging_faces_own_call(name, request):
    tokenizer = request.getfixturevalue(name)
    for text in TEXTS:
        prompt = tokenize(tokenizer, text, chat=True)
        message = [{"role": "user", "content": text}]
        expected = tokenizer.apply_chat_template(
            message, tokenize=True, add_generation_prompt=True, return_dict=False
        )
        assert list(prompt.ids) == expected
        assert prompt.ids[0] == tokenizer.bos_token_id != prompt.ids[1]


def test_bos_is_there_once_however_the_text_brings_it(tiny, trimmed):
    for tokenizer in (tiny, trimmed):
        bos = tokenizer.bos_token_id
        plain = tokenizer("a cat")["input_ids"]
        assert with_one_bos(tokenizer, "a cat")[0] == plain
        assert with_one_bos(tokenizer, tokenizer.bos_token + "a cat")[0] == plain
        assert plain.count(bos) == 1


def test_bos_is_there_once_where_the_template_leaves_it_to_the_tokenizer(tiny):
    import copy

    tokenizer = copy.deepcopy(tiny)
    tokenizer.chat_template = "{{ messages[0]['content'] }}<|assistant|>"
    prompt = tokenize(tokenizer, "a cat", chat=True)
    assert list(prompt.ids) == tiny("a cat<|assistant|>")["input_ids"]
    assert prompt.ids.count(tiny.bos_token_id) == 1


def test_an_end_of_text_that_the_tokenizer_appends_is_left_out(tiny):
    import copy

    from tokenizers import processors

    tokenizer = copy.deepcopy(tiny)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A <eos>", special_tokens=[("<bos>", 0), ("<eos>", 1)]
    )
    assert tokenizer("a cat")["input_ids"][-1] == tiny.eos_token_id  # what would go wrong
    assert list(tokenize(tokenizer, "a cat", chat=False).ids) == tiny("a cat")["input_ids"]
    written = tokenize(tokenizer, "a cat<eos>", chat=False)
    assert list(written.ids) == tiny("a cat<eos>")["input_ids"]


@pytest.mark.parametrize("name", ["tiny", "smol", "trimmed"])
def test_each_character_is_covered_by_the_tokens_that_hold_its_bytes(name, request):
    tokenizer = request.getfixturevalue(name)
    for text in TEXTS:
        prompt = tokenize(tokenizer, text, chat=False)
        ids, skip = own(tokenizer, prompt)
        for start in range(len(text)):
            for stop in range(start + 1, min(start + 4, len(text)) + 1):
                expected = touched_by_bytes(tokenizer, text, ids, start, stop)
                found = span_tokens(prompt, (start, stop), "here")
                assert found == (expected.start + skip, expected.stop + skip), (text, start, stop)


ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)


@settings(deadline=None)
@given(st.data())
@pytest.mark.parametrize("name", ["tiny", "smol", "trimmed"])
def test_a_span_covers_exactly_the_tokens_that_hold_its_bytes(name, request, data):
    tokenizer = request.getfixturevalue(name)
    text = data.draw(ANY_TEXT)
    start = data.draw(st.integers(0, len(text) - 1))
    stop = data.draw(st.integers(start + 1, len(text)))
    assume(tokenizer(text)["input_ids"])
    prompt = tokenize(tokenizer, text, chat=False)
    ids, skip = own(tokenizer, prompt)
    # SmolLM2 has no token for some bytes and leaves them out.
    assume(
        byte_ranges(tokenizer, ids)[-1:]
        and byte_ranges(tokenizer, ids)[-1][1] == len(text.encode())
    )
    expected = touched_by_bytes(tokenizer, text, ids, start, stop)
    assert span_tokens(prompt, (start, stop), "x") == Span(
        expected.start + skip, expected.stop + skip
    )


def test_sentence_pieces_keep_their_places(pieces):
    # <s> ▁the ▁cat ▁is ▁in ▁Paris
    prompt = tokenize(pieces, "the cat is in Paris", chat=False)
    for index, word in enumerate(["the", "cat", "is ", "in", "Paris"]):
        stop = index + 3 if word == "is " else index + 2  # its space belongs to the next token
        assert span_tokens(prompt, word, "x") == Span(index + 1, stop)
    # <s> ▁the ▁ <E6> <9D> <B1> ▁cat: each byte of the letter
    prompt = tokenize(pieces, "the 東 cat", chat=False)
    assert pieces.convert_ids_to_tokens(list(prompt.ids[3:6])) == ["<0xE6>", "<0x9D>", "<0xB1>"]
    assert span_tokens(prompt, "東", "x") == Span(3, 6)
    assert span_tokens(prompt, "cat", "x") == Span(6, 7)


@settings(max_examples=40, deadline=None)
@given(text=ANY_TEXT, data=st.data())
def test_a_chat_span_covers_exactly_the_tokens_that_hold_its_bytes(tiny, text, data):
    start = data.draw(st.integers(0, len(text) - 1))
    stop = data.draw(st.integers(start + 1, len(text)))
    prompt = tokenize(tiny, text, chat=True)
    # "<bos><|user|>\n", then the user's text: three tokens.
    assert tiny.decode(list(prompt.ids[:3])) == "<bos><|user|>\n"
    expected = touched_by_bytes(tiny, text, prompt.ids[3:], start, stop)
    assert span_tokens(prompt, (start, stop), "x") == (expected.start + 3, expected.stop + 3)


def test_a_span_in_white_space_that_the_template_strips_is_refused(tiny):
    import copy

    tokenizer = copy.deepcopy(tiny)
    tokenizer.chat_template = "{{ messages[0]['content'] | trim }}<|assistant|>"
    prompt = tokenize(tokenizer, "  The cat ", chat=True)
    assert span_tokens(prompt, (0, 5), "x") == span_tokens(prompt, "The", "x")
    assert span_tokens(prompt, (6, 10), "x") == span_tokens(prompt, "cat", "x")
    with pytest.raises(SpecError, match=re.escape("no token covers characters 0 to 2 of the text")):
        span_tokens(prompt, (0, 2), "Example 0, spans['x']")


def test_an_answer_is_what_it_adds_to_its_prompt(tiny, smol, pieces, trimmed):
    for tokenizer in (tiny, smol, trimmed, pieces):
        for prompt_text, answer in [
            ("The capital of France is", "Paris"),
            ("The capital of France is", " Paris"),
            ("The city:\n", "Paris"),
            ("the cat is in", "Paris, the cat"),
            ("東京", "は 👍🏽"),
        ]:
            prompt = tokenize(tokenizer, prompt_text, chat=False)
            ids = answer_tokens(tokenizer, prompt, answer, "here")
            space = "" if prompt_text.endswith("\n") or answer.startswith(" ") else " "
            whole = tokenizer(prompt_text + space + answer)["input_ids"]
            assert [*prompt.ids, *ids] == whole


def test_one_space_is_added_if_neither_side_has_one(smol):
    def added(text, answer, chat=False):
        return continuation(tokenize(smol, text, chat=chat), answer)

    assert added("is", "Rome") == added("is", " Rome") == " Rome"
    assert added("is ", "Rome") == added("is\n", "Rome") == "Rome"
    assert added("is", "Rome", chat=True) == "Rome"
    assert added("is", " Rome", chat=True) == " Rome"


def test_a_space_at_the_prompts_end_keeps_the_prompts_own_tokens(smol):
    prompt = tokenize(smol, "The capital of France is ", chat=False)
    joined = smol("The capital of France is Paris")["input_ids"]
    assert list(prompt.ids) != joined[: len(prompt.ids)]  # the tokenizer would join them
    ids = answer_tokens(smol, prompt, "Paris", "here")
    assert list(ids) == smol("Paris")["input_ids"]
    assert smol.decode([*prompt.ids, *ids]) == "The capital of France is Paris"


def test_spans_are_exact_behind_a_bos(pieces):
    # <s> ▁a <2E> <E6> <9D> <B1> <50>; the tokenizer's own offsets call the last five one run.
    prompt = tokenize(pieces, "a.東P", chat=False)
    found = [span_tokens(prompt, letter, "x") for letter in "a.東P"]
    assert found == [(1, 2), (2, 3), (3, 6), (6, 7)]


def test_an_answer_that_would_read_differently_is_refused(pieces):
    prompt = tokenize(pieces, "the cat is in ", chat=False)
    with pytest.raises(SpecError, match=r"Example 4, answers: the tokenizer joins .* 'Paris'"):
        answer_tokens(pieces, prompt, "Paris", "Example 4, answers")


def test_a_text_without_tokens_is_refused(smol):
    assert smol("\x16")["input_ids"] == []  # SmolLM2 lacks this byte
    with pytest.raises(SpecError, match=r"no tokens at all for the text '\\x16'"):
        tokenize(smol, "\x16", chat=False)


def test_a_model_brings_its_tokenizer_and_a_tokenizer_itself(tiny):
    class Model:
        tokenizer = tiny

    assert tokenizer_of(Model()) is tiny
    assert tokenizer_of(tiny) is tiny
    Model.tokenizer = None
    with pytest.raises(SpecError, match=r"This Model has no tokenizer; load the model with"):
        tokenizer_of(Model())
