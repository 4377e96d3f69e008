"""Where a text goes into a prompt, and the tokens that it is there."""

from typing import Any

from tlkit.errors import SpecError
from tlkit.models.text import encode
from tlkit.prompts.spans import short
from tlkit.prompts.tokens import Tokenized
from tlkit.spec.insertions import Insert

_ANCHORS = ("\n", "a", "0", ".")


def index_of_ids(tokenizer: Any, ids: tuple[int, ...], insert: Insert, where: str) -> int:
    """Return the token before which a text goes, in a prompt of ids without a text.

    Raises:
        SpecError: A character of it is asked for.
    """
    if isinstance(insert.at, int):
        raise SpecError(
            f"{where} was given as token ids and has no text, so it has no character {insert.at}; "
            "insert at 'start' or 'end', or make the prompts from texts."
        )
    bos = getattr(tokenizer, "bos_token_id", None)
    return len(ids) if insert.at == "end" else int(bos is not None and ids[0] == bos)


def index_of_text(read: Tokenized, insert: Insert, where: str) -> int:
    """Return the token that begins at the wanted character of the user's text.

    Raises:
        SpecError: The character lies outside the text or inside a token.
    """
    length = len(read.asked)
    offset = insert.at if isinstance(insert.at, int) else length * (insert.at == "end")
    if offset > length:
        raise SpecError(
            f"{where}: character {offset} lies outside the text, which has {length} characters."
        )
    body = read.rendered.body
    at = min(max(offset - read.rendered.skipped, 0), len(body)) + read.rendered.start
    for start, stop in read.offsets:
        if start < at < stop:
            raise SpecError(
                f"{where}: character {offset} lies inside the token "
                f"{short(read.rendered.text[start:stop])}; insert before or after it."
            )
    starts = (i for i, (start, stop) in enumerate(read.offsets) if at <= start < stop)
    return next(starts, len(read.ids))


def own_tokens(tokenizer: Any, text: str, leads: bool) -> tuple[int, ...]:
    """Tokenise a text on its own, whatever stands before it.

    Args:
        tokenizer: The model's tokenizer.
        text: The text.
        leads: Whether nothing stands before it. If something does, the space is left out that
            tokenizers such as Llama 2's write before a text.

    Raises:
        SpecError: It has no tokens.
    """
    alone = encode(tokenizer, text, special=False).ids
    if not alone:
        raise SpecError(f"The tokenizer has no tokens at all for the inserted text {short(text)}.")
    first = str(tokenizer.convert_ids_to_tokens(encode(tokenizer, "a", special=False).ids)[0])
    if leads or first[0] not in "▁Ġ":
        return tuple(alone)
    for anchor in _ANCHORS:
        before = encode(tokenizer, anchor, special=False).ids
        whole = encode(tokenizer, anchor + text, special=False).ids
        if whole[: len(before)] == before and len(whole) > len(before):
            return tuple(whole[len(before) :])
    raise SpecError(
        f"The tokenizer writes a space before {short(text)}; begin the inserted text with a space."
    )
