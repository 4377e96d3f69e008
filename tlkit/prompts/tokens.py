"""From text to token ids, once; everything downstream works on the ids."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tlkit.errors import SpecError
from tlkit.models.text import encode
from tlkit.prompts.chat import Rendered, render_user
from tlkit.prompts.offsets import exact_offsets
from tlkit.prompts.spans import Span, characters, short, touched


@dataclass(frozen=True)
class Tokenized:
    """One prompt: the user's text, what the model reads, and its tokens."""

    asked: str
    """The user's text."""
    rendered: Rendered
    """The text that was tokenised."""
    chat: bool
    """Whether the chat template was put around the user's text."""
    ids: tuple[int, ...]
    """Token ids, with the BOS that the model's tokenizer puts first, if it does."""
    offsets: tuple[tuple[int, int], ...]
    """The characters of `rendered.text` that each token covers; (0, 0) for an added BOS."""


def tokenizer_of(model: Any) -> Any:
    """Return a model's tokenizer, or the tokenizer itself if that was given.

    Raises:
        SpecError: There is none.
    """
    if hasattr(model, "convert_ids_to_tokens"):
        return model
    tokenizer = getattr(model, "tokenizer", None)
    if tokenizer is None:
        raise SpecError(
            f"This {type(model).__name__} has no tokenizer; load the model with tokenizer=..., or "
            "give token ids with Prompts.from_tokens."
        )
    return tokenizer


def with_one_bos(tokenizer: Any, text: str) -> tuple[list[int], list[tuple[int, int]]]:
    """Tokenise a text that a model is to continue.

    A BOS is first where the model's tokenizer puts one, and it is there once even if the text
    brings its own. An end-of-text token that the tokenizer appends is left out.

    Returns:
        Token ids, and the characters of each; (0, 0) for what the tokenizer added.
    """
    encoded = encode(tokenizer, text, special=True)
    ids, offsets = list(encoded.ids), list(encoded.offsets)
    bos = getattr(tokenizer, "bos_token_id", None)
    if bos is not None and ids[:2] == [bos, bos] and offsets[0] == (0, 0):
        ids, offsets = ids[1:], offsets[1:]
    while len(ids) > 1 and text and offsets[-1] == (0, 0):
        ids, offsets = ids[:-1], offsets[:-1]
    before = int(bool(ids) and ids[0] == bos and offsets[0] == (0, 0))
    exact = exact_offsets(tokenizer, ids[before:], offsets[before:], text)
    return ids, offsets[:before] + exact


def tokenize(tokenizer: Any, text: str, *, chat: bool, **variables: Any) -> Tokenized:
    """Tokenise a prompt, through the chat template if `chat`, which gets the `variables`.

    Raises:
        SpecError: Nothing is left of the text, or the chat template cannot be used.
    """
    rendered = render_user(tokenizer, text, **variables) if chat else Rendered(text, text, 0, 0)
    ids, offsets = with_one_bos(tokenizer, rendered.text)
    if not ids:
        raise SpecError(f"The tokenizer has no tokens at all for the text {short(text)}.")
    return Tokenized(text, rendered, chat, tuple(ids), tuple(offsets))


def span_tokens(prompt: Tokenized, asked: Any, where: str) -> Span | None:
    """Return the tokens of a user's span: each token that it touches, whole.

    Args:
        prompt: The tokenised prompt.
        asked: Offsets in the user's text, a part of it that occurs once, or None.
        where: How messages name the span.

    Raises:
        SpecError: The span is empty, outside the text, not found, or no token covers it.
    """
    found = characters(asked, prompt.asked, where)
    if found is None:
        return None
    body, shift = prompt.rendered.body, prompt.rendered.start
    start, stop = (min(max(edge - prompt.rendered.skipped, 0), len(body)) for edge in found)
    span = touched(prompt.offsets, start + shift, stop + shift)
    if span is None:
        raise SpecError(
            f"{where}: no token covers characters {found[0]} to {found[1]} of the text "
            f"({len(prompt.asked)} characters: {short(prompt.asked)}); the chat template or the "
            "tokenizer drops them."
        )
    return span


def continuation(prompt: Tokenized, answer: str) -> str:
    """Return the answer as it follows the prompt: with a space if neither side has one."""
    if prompt.chat or prompt.asked[-1:].isspace() or answer[:1].isspace():
        return answer
    return f" {answer}"


def _decoded(tokenizer: Any, ids: Sequence[int]) -> str:
    """Decode ids without tidying anything up."""
    return tokenizer.decode(
        list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
    )


def answer_tokens(tokenizer: Any, prompt: Tokenized, answer: str, where: str) -> tuple[int, ...]:
    """Return the ids of an answer that continues a prompt.

    They are what prompt and answer together have beyond the prompt's own ids. Where the
    tokenizer joins the prompt's end and the answer's start into one token, the answer is
    tokenised on its own, if that reads as the same text.

    Raises:
        SpecError: The answer on its own would read as another text.
    """
    text = continuation(prompt, answer)
    joint, _ = with_one_bos(tokenizer, prompt.rendered.text + text)
    known = len(prompt.ids)
    if tuple(joint[:known]) == prompt.ids and len(joint) > known:
        return tuple(joint[known:])
    apart = encode(tokenizer, text, special=False).ids
    if apart and _decoded(tokenizer, [*prompt.ids, *apart]) == _decoded(tokenizer, joint):
        return tuple(apart)
    raise SpecError(
        f"{where}: the tokenizer joins the end of the prompt and the answer {answer!r} into one "
        "token, and on its own the answer would read differently; move the prompt's last "
        "characters (often a space) to the start of the answer."
    )
