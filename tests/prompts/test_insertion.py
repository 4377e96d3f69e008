"""Faults to plant: tokenise the joined text; leave spans, alignment or labels where they were; put
the text before the BOS; count characters of the chat template; accept an offset in a token."""

import copy
import dataclasses

import pytest

from tlkit.errors import SpecError
from tlkit.prompts.insertion import inserted
from tlkit.prompts.prompts import Prompts
from tlkit.prompts.spans import Span
from tlkit.spec.insertions import Insert

# <bos> The capital of Italy is | <bos> Wh a t is the cat | <bos> (six bytes) is in Italy
TEXTS = ["The capital of Italy is", "What is the cat", "東京 is in Italy"]
FILLER = " a a a"


def own_ids(tokenizer, text):
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])


@pytest.fixture
def prompts(tiny):
    spans = {"question": ["capital of Italy", None, "in Italy"], "place": ["Italy", None, "東京"]}
    return Prompts.from_texts(tiny, TEXTS, ["Rome", "no", "yes"], spans=spans)


@pytest.fixture
def pair(tiny):
    """A pair of 6 and 14 tokens: "Bulgaria" is nine of them."""
    texts = ["The capital of France is"], ["The capital of Bulgaria is"]
    return Prompts.from_pairs(tiny, *texts, ["Paris"], ["Sofia"], {"question": ["of France"]})


def check(tokenizer, prompts, found, filler=FILLER, side="clean"):
    """Every original token is where the map says; between them stand the filler's own tokens."""
    maps = found.maps if side == "clean" else found.corrupted_maps
    spans = found.inserted if side == "clean" else found.corrupted_inserted
    rows = zip(prompts.ids(side), found.prompts.ids(side), maps, spans, strict=True)
    for old, new, where, span in rows:
        assert tuple(new[at] for at in where) == old
        assert new[slice(*span)] == own_ids(tokenizer, filler)
        assert list(where) == sorted({*range(len(new))} - {*range(*span)})


@pytest.mark.parametrize(
    ("at", "first", "begins"),
    [
        ("start", " a a aThe capital of Italy is", [1, 1, 1]),
        ("end", "The capital of Italy is a a a", [6, 7, 10]),
        ("before_question", "The a a a capital of Italy is", [2, 1, 8]),
    ],
)
def test_texts_keep_every_token(tiny, prompts, at, first, begins):
    found = inserted(tiny, prompts, Insert(FILLER, at=at))
    check(tiny, prompts, found)
    assert [span.start for span in found.inserted] == begins
    assert found.prompts.clean_texts[0] == first
    assert found.prompts.answers == prompts.answers
    assert found.prompts.tokenizer_hash == prompts.tokenizer_hash
    assert found.corrupted_maps is found.corrupted_inserted is found.prompts.alignment is None
    # The seams do not merge here, so the joined text is these very tokens.
    assert found.merged_seams == (0, 0, 0)
    joined = Prompts.from_texts(tiny, found.prompts.clean_texts)
    assert joined.clean == found.prompts.clean
    assert joined.clean_tokens == found.prompts.clean_tokens


def test_an_offset_counts_characters_of_the_users_text(tiny):
    accents = Prompts.from_texts(tiny, ["é is é is"], chat=False)
    found = inserted(tiny, accents, Insert(FILLER, at=4))
    check(tiny, accents, found)
    assert found.prompts.clean_texts == ("é is a a a é is",)
    assert found.inserted == (Span(4, 7),)  # after <bos>, two bytes and " is"
    last = inserted(tiny, accents, Insert(FILLER, at=9))
    assert last.prompts == inserted(tiny, accents, Insert(FILLER, at="end")).prompts


def test_spans_are_moved_and_hold_what_is_put_into_them(tiny, prompts):
    found = inserted(tiny, prompts, Insert(FILLER, at="before_question"))
    assert prompts.spans["question"] == (Span(2, 5), None, Span(8, 10))
    assert found.prompts.spans["question"] == (Span(5, 8), None, Span(11, 13))
    assert found.prompts.spans["place"] == (Span(7, 8), None, Span(1, 7))  # left of it: stays
    inside = inserted(tiny, prompts[0], Insert(FILLER, at=len("The capital")))
    assert inside.prompts.spans["question"] == (Span(2, 8),)


def test_merged_seams_are_counted_and_never_happen(tiny):
    # "Wh" + "en" would become the one token "When"; " c" + "at" would become " cat".
    wh = Prompts.from_texts(tiny, ["Wh", "at", "The"])
    merged = inserted(tiny, wh[0], Insert("en", at="end"))
    assert merged.merged_seams == (1,)
    check(tiny, wh[0], merged, "en")
    both = Prompts.from_texts(tiny, ["The cat sat"])
    cut = inserted(tiny, both, Insert("s", at=7))  # " cat" + "s" + " sat"
    assert cut.merged_seams == (0,)
    start = inserted(tiny, wh[1], Insert(" c", at="start"))
    assert start.merged_seams == (1,)
    check(tiny, wh[1], start, " c")
    # No character of the text changes hands between the tokens: " the" + " one".
    assert inserted(tiny, wh[2], Insert(" one", at="end")).merged_seams == (0,)


def test_chat_puts_the_text_inside_the_users_message(tiny, smol):
    for tokenizer in (tiny, smol):
        prompts = Prompts.from_texts(tokenizer, ["The cat sat", "What is that"], chat=True)
        for at, join in (("start", "{f}{t}"), ("end", "{t}{f}"), (7, None)):
            one = prompts[0] if join is None else prompts
            found = inserted(tokenizer, one, Insert(FILLER, at=at))
            check(tokenizer, one, found)
            texts = [
                "The cat a a a sat" if join is None else join.format(f=FILLER, t=text)
                for text in one.clean_texts
            ]
            assert found.prompts.clean_texts == tuple(texts)
            whole = tokenizer.apply_chat_template(
                [{"role": "user", "content": texts[0]}], tokenize=False, add_generation_prompt=True
            )
            decoded = tokenizer.decode(found.prompts.clean[0], clean_up_tokenization_spaces=False)
            assert decoded == whole


def test_white_space_that_the_template_strips_is_no_place_of_its_own(tiny):
    trims = copy.deepcopy(tiny)
    trims.chat_template = "[I]{{ messages[0]['content'] | trim }}[/I]"
    prompts = Prompts.from_texts(trims, ["  The cat \n"], chat=True)
    for at in ("start", 0, 1, 2):
        assert trims.decode(inserted(trims, prompts, Insert(FILLER, at=at)).prompts.clean[0]) == (
            "<bos>[I] a a aThe cat[/I]"
        )
    for at in ("end", 9, 11):
        assert trims.decode(inserted(trims, prompts, Insert(FILLER, at=at)).prompts.clean[0]) == (
            "<bos>[I]The cat a a a[/I]"
        )


def test_pairs_move_both_sides_and_their_alignment(tiny, pair):
    found = inserted(tiny, pair, Insert(FILLER, at="before_question"))
    check(tiny, pair, found)
    check(tiny, pair, found, side="corrupted")
    assert pair.alignment == ((0, 1, 2, 3, *[-1] * 8, 4, 5),)
    assert found.inserted == found.corrupted_inserted == (Span(3, 6),)
    assert found.prompts.alignment == ((0, 1, 2, 3, 4, 5, 6, *[-1] * 8, 7, 8),)
    assert found.prompts.corrupted_spans == {"question": (Span(6, 16),)}
    assert found.prompts.differing(0) == list(range(7, 16))
    end = inserted(tiny, pair, Insert(FILLER, at="end"))
    assert (end.inserted, end.corrupted_inserted) == ((Span(6, 9),), (Span(14, 17),))
    assert end.prompts.alignment == ((*pair.alignment[0], 6, 7, 8),)
    assert len(end.prompts.corrupted_tokens[0]) == 17


def test_an_offset_that_means_other_places_in_a_pair_is_refused(tiny, pair):
    at = len("The capital of France")  # inside Bulgaria's text
    with pytest.raises(SpecError, match=r"Example 0: .* token 5 of the clean .* do not correspond"):
        inserted(tiny, pair, Insert(FILLER, at=at))


def test_a_space_that_the_tokenizer_writes_is_there_at_the_start_alone(pieces):
    # <s> ▁the ▁cat ▁is; "is" alone would be "▁is".
    prompts = Prompts.from_texts(pieces, ["the cat is"])
    end = inserted(pieces, prompts, Insert("is", at="end"))
    names = pieces.convert_ids_to_tokens(end.prompts.clean[0])
    assert names == ["<s>", "▁the", "▁cat", "▁is", "is"]
    start = inserted(pieces, prompts, Insert("is", at="start"))
    names = pieces.convert_ids_to_tokens(start.prompts.clean[0])
    assert names == ["<s>", "▁is", "▁the", "▁cat", "▁is"]
    assert (end.merged_seams, start.merged_seams) == ((0,), (1,))  # "isthe" would be other tokens


def test_ids_without_a_text_have_a_start_and_an_end(tiny):
    rows, spans = [[0, 40, 41, 42], [40, 41, 42]], {"question": [(2, 4), None]}
    prompts = Prompts.from_tokens(rows, spans=spans)
    own = own_ids(tiny, FILLER)
    expected = {
        "start": [(0, *own, 40, 41, 42), (*own, 40, 41, 42)],
        "end": [(0, 40, 41, 42, *own), (40, 41, 42, *own)],
        "before_question": [(0, 40, *own, 41, 42), (*own, 40, 41, 42)],
    }
    for at, wanted in expected.items():
        found = inserted(tiny, prompts, Insert(FILLER, at=at))
        assert found.prompts.clean == tuple(wanted)
        assert found.merged_seams == (0, 0)
    with pytest.raises(SpecError, match="was given as token ids and has no text"):
        inserted(tiny, prompts, Insert(FILLER, at=0))


@pytest.mark.parametrize(
    ("at", "message"),
    [
        (5, "Example 0, clean prompt: character 5 lies inside the token ' capital'"),
        (24, "character 24 lies outside the text, which has 23 characters"),
    ],
)
def test_offsets_that_are_no_places_are_refused(tiny, prompts, at, message):
    with pytest.raises(SpecError, match=message):
        inserted(tiny, prompts, Insert(FILLER, at=at))


def test_prompts_that_are_not_this_tokenizers_are_refused(tiny, smol, trimmed, prompts):
    with pytest.raises(SpecError, match="tokenised by another tokenizer"):
        inserted(smol, prompts, Insert(FILLER))
    changed = dataclasses.replace(prompts, clean_texts=("The cat", *TEXTS[1:]))
    with pytest.raises(SpecError, match="its text is 3 other tokens than the prompt's 6"):
        inserted(tiny, changed, Insert(FILLER))


def test_a_text_without_tokens_is_refused(pieces, smol):
    # SmolLM2's vocabulary lacks this byte.
    prompts = Prompts.from_texts(smol, ["The cat"])
    with pytest.raises(SpecError, match="no tokens at all for the inserted text"):
        inserted(smol, prompts, Insert("\x04"))
