"""What is known of a model is true of it, and stays true when it changes."""

import copy
import gc

import pytest
import torch

from tlkit.models.info import hash_tokenizer, info
from tlkit.models.load import HookedTransformer
from tlkit.models.tiny import tiny, tiny_tokenizer


@pytest.fixture
def model():
    return HookedTransformer.from_pretrained("tiny:llama")


def test_info_says_what_was_loaded(model):
    known = info(model)
    assert (known.source, known.revision, known.family) == ("tiny:llama", None, "LlamaForCausalLM")
    assert (known.dtype, known.bos) == ("float32", True)
    assert info(model) is known


def test_equal_weights_have_equal_hashes_and_other_weights_others(model):
    again = HookedTransformer.from_pretrained("tiny:llama")
    other = HookedTransformer.from_pretrained(tiny("llama", seed=1), tokenizer=tiny_tokenizer())
    half = HookedTransformer.from_pretrained("tiny:llama", dtype="bf16")
    hashes = [info(m).weight_hash for m in (model, again, other, half)]
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3


def writes(model):
    """Every way in which people change a weight."""
    block = model.blocks[1]
    with torch.no_grad():
        yield block.attn.W_O.mul_(1.5)
        yield block.mlp.W_out[0].add_(1e-4)
        yield model.original_model.model.norm.weight.fill_(2.0)
    yield block.attn.o.weight.data.neg_()
    yield block.attn.o.weight.data.copy_(block.attn.o.weight.data.flip(0).clone())
    weight = block.attn.q.weight
    weight.data = weight.data * 1.001
    yield None
    state = model.original_model.state_dict()
    yield next(iter(state.values())).data.zero_()


def test_the_hash_follows_every_write(model):
    seen = {info(model).weight_hash}
    for number, _ in enumerate(writes(model)):
        seen.add(info(model).weight_hash)
        assert len(seen) == number + 2


def test_the_hash_of_unchanged_weights_is_taken_once(model, monkeypatch):
    known = info(model).weight_hash
    monkeypatch.setattr("tlkit.models.info.hash_weights", lambda _: pytest.fail("taken again"))
    model(torch.tensor([[0, 5, 6]]))
    assert info(model).weight_hash == known


def test_a_copy_of_a_model_has_an_info_of_its_own(model):
    before = info(model).weight_hash
    twin = copy.deepcopy(model)
    assert info(twin).weight_hash == before
    with torch.no_grad():
        twin.blocks[0].mlp.W_out.zero_()
    assert info(twin).weight_hash != before
    assert info(model).weight_hash == before


def test_info_of_a_bridge_that_tlkit_did_not_load(tmp_path):
    from transformer_lens.model_bridge import TransformerBridge

    tiny("llama").save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    theirs = TransformerBridge.boot_transformers(str(tmp_path), device="cpu")
    known = info(theirs)
    assert (known.source, known.family) == (str(tmp_path), "LlamaForCausalLM")
    assert known.bos is True


def test_info_does_not_keep_a_model_in_memory():
    model = HookedTransformer.from_pretrained("tiny:gpt2")
    known = info(model)
    digest = known.weight_hash
    del model
    gc.collect()
    assert known._model() is None
    assert known.weight_hash == digest


def test_padding_and_truncation_do_not_change_a_tokenizers_hash():
    tokenizer = tiny_tokenizer()
    before = hash_tokenizer(tokenizer)
    tokenizer(["a", "a longer text"], padding=True, truncation=True, max_length=3)
    assert hash_tokenizer(tokenizer) == before
    assert hash_tokenizer(copy.deepcopy(tokenizer)) == before


def test_what_changes_reading_changes_a_tokenizers_hash():
    from tokenizers.processors import TemplateProcessing

    before = hash_tokenizer(tiny_tokenizer())
    word, silent = tiny_tokenizer(), tiny_tokenizer()
    word.add_tokens(["Maryland"])
    silent.backend_tokenizer.post_processor = TemplateProcessing(single="$A", special_tokens=[])
    assert silent("a")["input_ids"] != tiny_tokenizer()("a")["input_ids"]
    assert len({before, hash_tokenizer(word), hash_tokenizer(silent)}) == 3


def test_a_saved_tokenizer_has_the_hash_that_it_had(tmp_path):
    from transformers import AutoTokenizer

    tiny_tokenizer().save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert hash_tokenizer(again) == hash_tokenizer(tiny_tokenizer())
