"""Text becomes the tokenizer's own ids, and each token knows its characters."""

import copy

import pytest
import torch

from tlkit.errors import SpecError
from tlkit.models.load import HookedTransformer
from tlkit.models.text import encode, render_chat, token_labels
from tlkit.models.tiny import tiny, tiny_tokenizer
from tlkit.models.wrap import adds_bos, with_padding

TEXTS = [
    "",
    "Mary went to the store",
    " leading and trailing ",
    "naïve café — “quotes”",
    "😀 and 👩‍👩‍👧",
    "日本語のテキスト",
    "two\n\nlines\tand tabs",
    "a<eos>b",
    "e\u0301 combining",
]


@pytest.fixture(params=["tiny", "embedded"])
def tokenizer(request):
    if request.param == "tiny":
        return tiny_tokenizer()
    return request.getfixturevalue("embedded").tokenizer


@pytest.mark.parametrize("text", TEXTS)
def test_ids_are_the_tokenizers_own(tokenizer, text):
    assert encode(tokenizer, text).ids == tokenizer(text)["input_ids"]
    bare = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert encode(tokenizer, text, special=False).ids == bare


@pytest.mark.parametrize("text", TEXTS)
def test_offsets_cover_every_character_in_order(tokenizer, text):
    ids, offsets = encode(tokenizer, text, special=False)
    covered, before = set(), 0
    for start, stop in offsets:
        assert before <= start < stop <= len(text)
        covered |= set(range(start, stop))
        before = start
    assert covered == set(range(len(text)))
    assert len(ids) == len(offsets)


@pytest.mark.parametrize("text", [text for text in TEXTS if text])
def test_the_characters_of_a_token_are_what_it_decodes_to(tokenizer, text):
    ids, offsets = encode(tokenizer, text, special=False)
    for token, (start, stop) in zip(ids, offsets, strict=True):
        spelled = tokenizer.decode([token])
        if "\ufffd" not in spelled:
            assert text[start:stop] == spelled


def test_an_emoji_of_several_tokens_is_covered_by_each_of_them():
    ids, offsets = encode(tiny_tokenizer(), "a😀b", special=False)
    assert offsets == [(0, 1)] + 4 * [(1, 2)] + [(2, 3)]
    assert token_labels(tiny_tokenizer(), ids) == ["a", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "b"]


def test_a_merged_token_covers_all_its_characters():
    ids, offsets = encode(tiny_tokenizer(), "The capital of France")
    assert offsets == [(0, 0), (0, 3), (3, 11), (11, 14), (14, 21)]
    assert token_labels(tiny_tokenizer(), ids) == ["<bos>", "The", " capital", " of", " France"]


def test_a_long_text_is_neither_cut_nor_padded():
    tokenizer = tiny_tokenizer()
    tokenizer.model_max_length = 8
    tokenizer(["a", "bb"], padding=True, truncation=True)
    assert len(encode(tokenizer, "x" * 100).ids) == 101


def test_a_model_is_asked_for_its_tokenizer(tiny_bridge):
    assert encode(tiny_bridge("llama"), "Mary") == encode(tiny_tokenizer(), "Mary")


def test_a_sentencepiece_like_tokenizer_has_offsets_too():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "b", "▁a", "ab"]
    backend = Tokenizer(
        models.BPE(
            vocab={word: index for index, word in enumerate(words)},
            merges=[("▁", "a"), ("a", "b")],
            unk_token="<unk>",
            byte_fallback=True,
        )
    )
    backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first")
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")
    ids, offsets = encode(tokenizer, "a é ab")
    labels = token_labels(tokenizer, ids)
    assert labels == [" a", " ", "<0xC3>", "<0xA9>", " a", "b"]
    assert offsets == [(0, 1), (1, 2), (2, 3), (2, 3), (3, 5), (5, 6)]


def test_a_slow_tokenizer_is_read_by_decoding():
    class Slow:
        """Says no offsets, as tokenizers written in Python do."""

        is_fast = False

        def __init__(self, inner):
            self.inner = inner

        def __call__(self, *args, **settings):
            return self.inner(*args, **settings)

        def __getattr__(self, name):
            return getattr(self.inner, name)

    text = "When Mary — naïve 😀 went"
    fast, slow = encode(tiny_tokenizer(), text), encode(Slow(tiny_tokenizer()), text)
    assert slow == fast


def test_a_model_without_a_tokenizer_says_so():
    from transformer_lens.model_bridge.sources import build_bridge_from_module

    model = tiny("llama")
    bridge = build_bridge_from_module(model, "LlamaForCausalLM", hf_config=model.config)
    with pytest.raises(SpecError, match="The model has no tokenizer; load it with"):
        encode(bridge, "Mary")


class TestChat:
    def test_bos_stands_exactly_once(self, tokenizer):
        chat = render_chat(tokenizer, [{"role": "user", "content": "Hi"}])
        messages = [{"role": "user", "content": "Hi"}]
        theirs = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_dict=False
        )
        assert encode(tokenizer, chat, special=False).ids == theirs

    def test_the_tiny_chat_has_one_bos(self):
        ids = encode(tiny_tokenizer(), render_chat(tiny_tokenizer(), "Hi"), special=False).ids
        assert ids.count(0) == 1
        assert ids[0] == 0

    def test_the_generation_prompt_can_be_left_out(self):
        chat = render_chat(tiny_tokenizer(), "Hi", generation_prompt=False)
        assert chat == "<bos><|user|>\nHi<eos>\n"

    def test_a_base_model_has_no_template(self):
        tokenizer = tiny_tokenizer()
        tokenizer.chat_template = None
        with pytest.raises(SpecError, match="has no chat template: it is a base model"):
            render_chat(tokenizer, "Hi")

    def test_a_template_may_refuse(self):
        tokenizer = tiny_tokenizer()
        tokenizer.chat_template = "{{ raise_exception('no system role') }}"
        with pytest.raises(SpecError, match="chat template refuses these messages: no system role"):
            render_chat(tokenizer, "Hi")


class TestLabels:
    @pytest.mark.parametrize("text", TEXTS)
    def test_there_is_one_for_each_token(self, tokenizer, text):
        ids = encode(tokenizer, text).ids
        labels = token_labels(tokenizer, ids)
        assert len(labels) == len(ids)
        assert all(label and "\n" not in label and "\ufffd" not in label for label in labels)

    def test_every_id_of_a_model_has_one(self, embedded):
        rows = embedded.cfg.d_vocab
        labels = token_labels(embedded, range(rows))
        assert len(labels) == rows
        assert all(labels)

    def test_an_id_without_a_word_is_shown_as_a_number(self):
        assert token_labels(tiny_tokenizer(), [511, 0]) == ["<511>", "<bos>"]

    def test_tensors_are_fine(self):
        assert token_labels(tiny_tokenizer(), torch.tensor([0, 1])) == ["<bos>", "<eos>"]


class TestPadding:
    def test_a_tokenizer_that_can_pad_is_left_alone(self):
        tokenizer = tiny_tokenizer()
        assert with_padding(tokenizer) is tokenizer

    def test_a_missing_pad_token_is_borrowed_and_changes_no_reading(self):
        tokenizer = tiny_tokenizer()
        tokenizer.pad_token = None
        padded = with_padding(tokenizer)
        assert padded.pad_token == "<eos>"
        assert tokenizer.pad_token is None
        for text in TEXTS:
            assert padded(text)["input_ids"] == tokenizer(text)["input_ids"]
        assert len(padded) == len(tokenizer)

    def test_a_model_with_it_batches_texts(self):
        tokenizer = tiny_tokenizer()
        tokenizer.pad_token = None
        model = HookedTransformer.from_pretrained("tiny:llama", tokenizer=tokenizer)
        assert model.to_tokens(["a", "a b"]).shape == (2, 4)

    def test_without_any_special_token_nothing_is_made_special(self):
        tokenizer = tiny_tokenizer()
        bare = copy.deepcopy(tokenizer)
        bare.pad_token = bare.eos_token = bare.bos_token = None
        assert with_padding(bare) is bare


class TestBos:
    @pytest.mark.parametrize("bos", [True, False])
    def test_the_policy_is_what_the_tokenizer_does(self, bos):
        from tokenizers.processors import TemplateProcessing

        tokenizer = tiny_tokenizer()
        if not bos:
            tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
                single="$A", special_tokens=[]
            )
        model = HookedTransformer.from_pretrained("tiny:llama", tokenizer=tokenizer)
        assert adds_bos(tokenizer) is bos
        assert model.to_tokens("Mary")[0].tolist() == tokenizer("Mary")["input_ids"]
        assert model.to_tokens("Mary")[0].tolist().count(0) == int(bos)

    def test_smollm2_puts_none(self, embedded):
        assert adds_bos(embedded.tokenizer) is False
        assert embedded.to_tokens("Hello world").tolist() == [[19556, 905]]
