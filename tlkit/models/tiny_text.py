"""The tokenizer of the tiny models: byte-level BPE with merges written here, nothing trained."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

VOCAB = 512
BOS, EOS, PAD, USER, ASSISTANT, SYSTEM = (
    "<bos>",
    "<eos>",
    "<pad>",
    "<|user|>",
    "<|assistant|>",
    "<|system|>",
)
SPECIALS = (BOS, EOS, PAD, USER, ASSISTANT, SYSTEM)
BOS_ID, EOS_ID, PAD_ID = 0, 1, 2

# Each becomes one token, with and without its leading space where the space is written.
WORDS = (
    " the",
    " Mary",
    " John",
    " Tom",
    " gave",
    " a",
    " to",
    " of",
    " and",
    " went",
    " store",
    " drink",
    " When",
    "When",
    "The",
    " is",
    " in",
    " was",
    " capital",
    " France",
    " Paris",
    " Rome",
    " Italy",
    " city",
    " not",
    " yes",
    " no",
    " What",
    " cat",
    " dog",
    " sat",
    " one",
    " two",
    " that",
)

CHAT = (
    "{{ bos_token }}{% for message in messages %}<|{{ message['role'] }}|>\n"
    "{{ message['content'] }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


def _merges(words: tuple[str, ...], byte: dict[int, str]) -> list[tuple[str, str]]:
    """List the merges that build each word from left to right, each once."""
    merges: dict[tuple[str, str], None] = {}
    for word in words:
        letters = [byte[code] for code in word.encode()]
        for end in range(1, len(letters)):
            merges["".join(letters[:end]), letters[end]] = None
    return list(merges)


def tiny_tokenizer() -> "PreTrainedTokenizerFast":
    """Build the tiny models' tokenizer.

    Byte-level BPE of at most `VOCAB` tokens: every text has a tokenization, and some words of
    several letters are one token. Text gets one `<bos>`; the chat template writes it once.

    Returns:
        A fast tokenizer with `<bos>` 0, `<eos>` 1 and `<pad>` 2.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    byte = bytes_to_unicode()
    merges = _merges(WORDS, byte)
    tokens = [*SPECIALS, *byte.values(), *("".join(pair) for pair in merges)]
    vocabulary = {token: index for index, token in enumerate(dict.fromkeys(tokens))}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, BOS_ID)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        additional_special_tokens=[USER, ASSISTANT, SYSTEM],
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT
    return tokenizer
