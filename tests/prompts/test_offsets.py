"""Faults to plant: forget the space that SentencePiece puts first; take the tokenizer's own
offsets always."""

from tlkit.prompts.offsets import exact_offsets


def walked(tokenizer, text):
    """A tokenizer's tokens without BOS, its own offsets, and the exact ones."""
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    ids, own = encoded["input_ids"], encoded["offset_mapping"]
    return tokenizer.convert_ids_to_tokens(ids), own, exact_offsets(tokenizer, ids, own, text)


def test_white_space_that_a_tokenizer_leaves_out_is_found_again(trimmed):
    tokens, own, exact = walked(trimmed, "a.\n\nPb  c")
    assert tokens == ["a", ".ĊĊ", "P", "b", "Ġ", "Ġ", "c"]
    assert own == [(0, 1), (1, 4), (4, 5), (5, 6), (7, 7), (8, 8), (8, 9)]
    assert exact == [(0, 1), (1, 4), (4, 5), (5, 6), (6, 7), (7, 8), (8, 9)]


def test_bytes_of_unknown_letters_are_told_apart(pieces):
    tokens, own, exact = walked(pieces, "a.東P")
    assert tokens == ["▁a", "<0x2E>", "<0xE6>", "<0x9D>", "<0xB1>", "<0x50>"]
    assert set(own[1:]) == {(1, 4)}
    assert exact == [(0, 1), (1, 2), (2, 3), (2, 3), (2, 3), (3, 4)]


def test_the_space_put_before_a_text_covers_nothing(pieces):
    tokens, _, exact = walked(pieces, "éa")
    assert tokens == ["▁", "é", "a"]
    assert exact == [(0, 0), (0, 1), (1, 2)]
    tokens, _, exact = walked(pieces, " é")
    assert exact[-1] == (1, 2)


def test_special_tokens_in_a_text_are_its_characters(tiny):
    tokens, own, exact = walked(tiny, "a <eos>é")
    assert tokens == ["Ġa"[1:], "Ġ", "<eos>", "Ã", "©"]
    assert exact == own == [(0, 1), (1, 2), (2, 7), (7, 8), (7, 8)]


def test_tokens_after_a_dropped_byte_are_not_shifted(smol):
    # SmolLM2 has no token for the byte F1, the first of four; its own offsets slip there.
    tokens, own, exact = walked(smol, "0\U00040000: x")
    assert tokens[0] == "0" and tokens[-2:] == [":", "Ġx"]
    assert own[-2] != (2, 3)
    assert exact == [(0, 1)] + [(1, 2)] * (len(tokens) - 3) + [(2, 3), (3, 5)]


def test_a_mark_that_was_composed_belongs_to_its_letter(tiny):
    import copy

    from tokenizers import normalizers

    tokenizer = copy.deepcopy(tiny)
    tokenizer.backend_tokenizer.normalizer = normalizers.NFC()
    tokens, own, exact = walked(tokenizer, "xe\u0302\u0301 a\u1100\u1161\u11a8b")
    # NFC: x, one letter of three bytes, space + a, one Hangul syllable of three bytes, b.
    assert len(tokens) == 9
    assert own[1:4] == [(1, 2)] * 3
    assert exact == [(0, 1), *[(1, 4)] * 3, (4, 6), *[(6, 9)] * 3, (9, 10)]


def test_white_space_is_found_where_a_text_is_normalised(trimmed):
    import copy

    from tokenizers import normalizers

    tokenizer = copy.deepcopy(trimmed)
    tokenizer.backend_tokenizer.normalizer = normalizers.NFC()
    tokens, own, exact = walked(tokenizer, "e\u0301  Pab")
    assert tokens == ["Ã", "©", "Ġ", "ĠP", "ab"]
    assert own == [(0, 1), (0, 1), (3, 3), (4, 5), (5, 7)]
    assert exact == [(0, 2), (0, 2), (2, 3), (3, 5), (5, 7)]
