"""Which characters each token covers, to the byte.

A tokenizer's own offsets may leave out white space (Llama 3, NeoX), may give a run of letters that
the vocabulary lacks to each of its bytes, and are shifted after a byte that it drops (SmolLM2).
Tokens spell their bytes, though, so walking over them finds the exact characters. Where they do
not spell the text, as when the tokenizer normalises it, its own offsets are used.
"""

import functools
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any
from unicodedata import normalize

Offsets = list[tuple[int, int]]


@functools.cache
def _letters() -> dict[str, int]:
    """Return the byte of each letter in which byte-level BPE writes its tokens."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = {chr(byte): byte for byte in plain}
    return letters | {chr(256 + index): byte for index, byte in enumerate(others)}


def _byte_level(token: str) -> bytes | None:
    """Return the bytes of a byte-level token, None if it is none."""
    try:
        return bytes(_letters()[letter] for letter in token)
    except KeyError:
        return None


def _missing(tokenizer: Any) -> bytes:
    """Return the bytes that a byte-level vocabulary lacks; the tokenizer drops them."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return b""
    return bytes(b for letter, b in _letters().items() if backend.token_to_id(letter) is None)


def _piece(token: str) -> bytes | None:
    """Return the bytes of a SentencePiece token."""
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes.fromhex(token[3:5])
    return token.replace("▁", " ").encode()


def _walk(spelled: Sequence[bytes | None], text: str, missing: bytes = b"") -> Offsets | None:
    """Return the characters of each token if the tokens spell the text, else None."""
    whole = b"".join(part or b"" for part in spelled)
    owned = [(index, byte) for index, letter in enumerate(text) for byte in letter.encode()]
    owned = [(index, byte) for index, byte in owned if byte not in missing]
    wanted = bytes(byte for _, byte in owned)
    added = int(whole != wanted)  # a space before the text, as SentencePiece writes it
    if None in spelled or whole != b" " * added + wanted:
        return None
    # The character that each byte belongs to; an added space belongs to none.
    owner = [-1] * added + [index for index, _ in owned]
    edges = list(accumulate((len(part or b"") for part in spelled), initial=0))
    offsets = []
    for left, right in pairwise(edges):
        covered = owner[left:right]
        start = max(covered[0], 0) if covered else 0
        offsets.append((start, covered[-1] + 1) if covered else (0, 0))
    return offsets


def exact_offsets(tokenizer: Any, ids: Sequence[int], given: Offsets, text: str) -> Offsets:
    """Return the characters that each token covers.

    Args:
        tokenizer: What made the ids.
        ids: Token ids of the text, after those that the tokenizer put before it.
        given: The tokenizer's own offsets, for text that its tokens do not spell.
        text: The text.
    """
    tokens = [str(token) for token in tokenizer.convert_ids_to_tokens(list(ids))]
    written = set(tokenizer.get_added_vocab())
    for reading, missing in ((_byte_level, b""), (_piece, b""), (_byte_level, None)):
        spelled = [token.encode() if token in written else reading(token) for token in tokens]
        if missing is None:
            missing = _missing(tokenizer)
        found = _walk(spelled, text, missing)
        if found is not None:
            return found
    return _closed(given, text)


def _composed(text: str, at: int, stop: int) -> int:
    """Return the end of the marks from `at` on that compose with the character before them."""
    end = at
    while at > 0 and end < stop:
        if len(normalize("NFC", text[at - 1 : end + 1])) > 1:
            break
        end += 1
    return end


def _closed(given: Offsets, text: str) -> Offsets:
    """Give back the marks and the white space that a tokenizer's own offsets leave out.

    A mark that was composed with its letter belongs to the tokens of that letter; white space
    belongs to the token before which it stands.
    """
    closed: Offsets = []
    reached = 0
    for start, stop in [*given, (len(text), len(text))]:
        marks = _composed(text, reached, start)
        if marks > reached:
            closed = [(left, marks if right == reached else right) for left, right in closed]
        while start > max(marks, reached) and text[start - 1].isspace():
            start -= 1
        closed.append((start, stop))
        reached = max(reached, marks, stop)
    return closed[:-1]
