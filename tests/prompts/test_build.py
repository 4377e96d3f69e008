"""Faults to plant: accept corrupted spans without corrupted prompts; let ids past the vocabulary
through."""

import pytest

from tlkit.errors import SpecError
from tlkit.prompts.build import pairs, texts, tokens

NO = (None, None)


def test_everything_is_checked_before_anything_is_tokenised():
    class Untouchable:
        """A tokenizer that must not be asked."""

        def __getattr__(self, name):
            raise AssertionError(f"asked for {name}")

    for sides, answers in [
        ((["a"], ["b", "c"]), (["x"], None)),
        ((["a"], ["b"]), ([], None)),
        ((["a"], ["b"]), (["x"], [""])),
        (([], []), ([], None)),
    ]:
        with pytest.raises(SpecError, match=r"is empty|entries for 1 prompts"):
            pairs(Untouchable(), sides, answers, NO, chat=False)
    with pytest.raises(SpecError, match=r"texts\[0\] is empty"):
        texts(Untouchable(), [" "], NO, None, chat=False)


def test_ids_are_checked_against_the_model(tiny):
    class Model:
        tokenizer = tiny

        class cfg:
            d_vocab = 512

    with pytest.raises(
        SpecError, match=r"answers\[0\] holds token id 512; this model has 0 to 511"
    ):
        tokens(Model(), ([[1, 2]], None), ([512], None), NO)
    made = tokens(Model(), ([[0, 511]], None), NO, NO)
    assert made["clean_tokens"] == (("<bos>", "<511>"),)
    with pytest.raises(SpecError, match=f"this model has 0 to {len(tiny) - 1}"):
        tokens(tiny, ([[511]], None), NO, NO)


def test_spans_of_ids_are_positions():
    made = tokens(None, ([[5, 6, 7]], [[5, 8, 8, 7]]), NO, ({"who": [(1, 2)]}, {"who": [[1, 3]]}))
    assert made["spans"] == {"who": ((1, 2),)}
    assert made["corrupted_spans"] == {"who": ((1, 3),)}
    assert made["alignment"] == ((0, -1, 1, 2),)
    for wrong in [(1, 4), (2, 2), (-1, 2), (1,), "ab"]:
        with pytest.raises(SpecError, match=r"Example 0, spans\['who'\] is .*stop <= 3"):
            tokens(None, ([[5, 6, 7]], None), NO, ({"who": [wrong]}, None))


def test_what_does_not_belong_together_is_refused():
    with pytest.raises(SpecError, match="corrupted_spans needs corrupted prompts"):
        tokens(None, ([[5]], None), NO, (None, {"who": [(0, 1)]}))
    with pytest.raises(SpecError, match="corrupted has 2 entries for 1 prompts"):
        tokens(None, ([[5]], [[6], [7]]), NO, NO)
    with pytest.raises(SpecError, match="the answer and the wrong answer are the same tokens"):
        tokens(None, ([[5]], None), ([[3]], [3]), NO)
