"""How text becomes a model's tokens, which characters each one covers, and how tokens are shown."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsInt

from tlkit.errors import SpecError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_VISIBLE = str.maketrans({"\n": "↵", "\r": "␍", "\t": "⇥"})


class Encoded(NamedTuple):
    """A text's tokens.

    Attributes:
        ids: The token ids.
        offsets: For each token the characters that it covers, as (start, stop). Tokens that share
            a character (an emoji of several bytes) all name it; tokens that the tokenizer added
            cover none and have (0, 0).
    """

    ids: list[int]
    offsets: list[tuple[int, int]]


def tokenizer_of(model_or_tokenizer: Any) -> "PreTrainedTokenizerBase":
    """Give a model's tokenizer, or the tokenizer itself.

    Raises:
        SpecError: The model has none.
    """
    from tlkit.models.sources import is_bridge

    found = model_or_tokenizer.tokenizer if is_bridge(model_or_tokenizer) else model_or_tokenizer
    if found is None:
        raise SpecError(
            "The model has no tokenizer; load it with HookedTransformer.from_pretrained(model, "
            "tokenizer=...), or give token ids."
        )
    return found


def encode(model_or_tokenizer: Any, text: str, *, special: bool = True) -> Encoded:
    """Read a text as its model does.

    Args:
        model_or_tokenizer: Whose way of reading it is.
        text: Any text; nothing is cut off and nothing padded.
        special: Whether tokens such as BOS are added as the tokenizer does by itself; False for
            text that has them written out, such as a rendered chat.

    Returns:
        Ids and the characters of each.

    Examples:
        >>> from tlkit.models.tiny import tiny_tokenizer
        >>> encode(tiny_tokenizer(), "Mary went").offsets
        [(0, 0), (0, 1), (1, 2), (2, 3), (3, 4), (4, 9)]
    """
    tokenizer = tokenizer_of(model_or_tokenizer)
    settings: dict[str, Any] = {
        "add_special_tokens": special,
        "truncation": False,
        "padding": False,
        "verbose": False,
    }
    if not tokenizer.is_fast:
        ids = [int(i) for i in tokenizer(text, **settings)["input_ids"]]
        return Encoded(ids, _slow_offsets(tokenizer, text, ids))
    read = tokenizer(text, return_offsets_mapping=True, **settings)
    ids = [int(i) for i in read["input_ids"]]
    return Encoded(ids, [(int(start), int(stop)) for start, stop in read["offset_mapping"]])


def _slow_offsets(tokenizer: Any, text: str, ids: list[int]) -> list[tuple[int, int]]:
    """Find the characters of tokens for a tokenizer that does not say, by decoding prefixes.

    Raises:
        SpecError: Decoding does not give the text back.
    """
    added = set(tokenizer.all_special_ids)
    offsets, at, kept = [], 0, []
    for token in ids:
        if token in added and tokenizer.convert_ids_to_tokens(token) not in text:
            offsets.append((0, 0))
            continue
        kept.append(token)
        so_far = tokenizer.decode(kept, clean_up_tokenization_spaces=False).rstrip("\ufffd")
        if not text.startswith(so_far):
            raise SpecError(
                f"This {type(tokenizer).__name__} does not say which characters a token covers; "
                f"give token ids, or a fast tokenizer."
            )
        offsets.append((at, max(len(so_far), min(at + 1, len(text)))))
        at = len(so_far)
    return offsets


def render_chat(
    model_or_tokenizer: Any,
    messages: str | Sequence[Mapping[str, str]],
    *,
    generation_prompt: bool = True,
    **variables: Any,
) -> str:
    """Write messages as the model's chat template does; encode the result with `special=False`.

    Args:
        model_or_tokenizer: Whose template it is.
        messages: Dicts of role and content; a plain text is one message of the user.
        generation_prompt: Whether the text ends where the assistant begins to speak.
        **variables: Handed to the template, such as ``enable_thinking=False`` (Qwen 3); a template
            that does not know one passes it over.

    Returns:
        The text, its special tokens written out.

    Raises:
        SpecError: There is no template, or it refuses the messages.
    """
    from jinja2 import TemplateError

    tokenizer = tokenizer_of(model_or_tokenizer)
    if not tokenizer.chat_template:
        raise SpecError(
            "The model's tokenizer has no chat template: it is a base model; use plain text."
        )
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    try:
        return str(
            tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                tokenize=False,
                add_generation_prompt=generation_prompt,
                **variables,
            )
        )
    except TemplateError as error:
        raise SpecError(f"The chat template refuses these messages: {error}") from error


@functools.lru_cache(maxsize=1)
def _byte_of() -> dict[str, int]:
    """Give the byte that each letter of a byte-level vocabulary stands for."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return {letter: byte for byte, letter in bytes_to_unicode().items()}


def _is_byte_level(tokenizer: "PreTrainedTokenizerBase") -> bool:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return hasattr(tokenizer, "byte_decoder")
    return "ByteLevel" in repr(backend.decoder) or "ByteLevel" in repr(backend.pre_tokenizer)


def _spell(piece: str) -> str:
    """Spell a byte-level piece as text, or as its bytes where it is a part of a character."""
    byte = _byte_of()
    if any(letter not in byte for letter in piece):
        return piece
    text = bytes(byte[letter] for letter in piece).decode("utf-8", "surrogateescape")
    return "".join(f"<0x{ord(c) & 0xFF:02X}>" if "\udc80" <= c <= "\udcff" else c for c in text)


def token_labels(model_or_tokenizer: Any, ids: Iterable[SupportsInt]) -> list[str]:
    r"""Show tokens to people: one label for each id, never two made one.

    Spaces stay, line ends become visible, a part of a character is spelled as its bytes, and an id
    that the tokenizer has no word for is shown as a number.

    Examples:
        >>> from tlkit.models.tiny import tiny_tokenizer
        >>> tokenizer = tiny_tokenizer()
        >>> token_labels(tokenizer, tokenizer(" the\nμ")["input_ids"])
        ['<bos>', ' the', '↵', '<0xCE>', '<0xBC>']
    """
    tokenizer: Any = tokenizer_of(model_or_tokenizer)
    added = set(tokenizer.added_tokens_decoder)
    byte_level = _is_byte_level(tokenizer)
    labels = []
    for token in ids:
        piece = tokenizer.convert_ids_to_tokens(int(token))
        if piece is None:
            label = f"<{int(token)}>"
        elif isinstance(piece, bytes):
            label = piece.decode("utf-8", "backslashreplace")
        elif int(token) in added:
            label = piece
        else:
            label = _spell(piece) if byte_level else piece.replace("▁", " ")
        labels.append(label.translate(_VISIBLE))
    return labels
