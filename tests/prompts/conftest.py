"""Tokenizers of the kinds that models use, built by hand or the embedded model's."""

import pytest

VOCABULARY = ["▁", "▁the", "▁cat", "▁Paris", "Paris", "▁is", "s", "is", "▁in", "é", "▁a", "a"]


@pytest.fixture(scope="session")
def tiny():
    """Byte-level BPE with a BOS and a chat template that writes it."""
    from tlkit.models.tiny_text import tiny_tokenizer

    return tiny_tokenizer()


@pytest.fixture(scope="session")
def smol(embedded):
    """SmolLM2's tokenizer: byte-level without BOS, some bytes missing, a chat template."""
    return embedded.tokenizer


def byte_level(trim: bool, merges: list[tuple[str, str]]):
    """Byte-level BPE as GPT-2's or Llama 3's; `trim` cuts spaces out of the offsets."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    letters = [*bytes_to_unicode().values(), *("".join(pair) for pair in merges)]
    vocabulary = {"<s>": 0, "</s>": 1} | {letter: i + 2 for i, letter in enumerate(letters)}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    # Llama 3's rule: a mark takes the line ends after it.
    words = Regex(r" ?\p{L}+| ?[^\s\p{L}]+[\r\n]*|\s+(?!\S)|\s+")
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(words, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    bos = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    backend.post_processor = processors.Sequence(
        [processors.ByteLevel(add_prefix_space=False, trim_offsets=trim), bos]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")


@pytest.fixture(scope="session")
def trimmed():
    """Byte-level BPE whose own offsets leave out white space, as Llama 3's and NeoX's do."""
    merges = [("Ċ", "Ċ"), (".", "ĊĊ"), ("Ġ", "P"), ("a", "b"), ("Ġ", "Ġ")]
    return byte_level(True, merges)


@pytest.fixture(scope="session")
def pieces():
    """A SentencePiece-like tokenizer as Llama 2's: a space before the text, bytes as a last way."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    scored = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0)]
    scored += [(piece, -1.0) for piece in VOCABULARY]
    scored += [(f"<0x{byte:02X}>", -20.0) for byte in range(256)]
    backend = Tokenizer(models.Unigram(scored, unk_id=0, byte_fallback=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
