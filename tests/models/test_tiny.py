"""Tiny models have the structure of the real ones, and a seed says all about their weights."""

import pytest
import torch

from tlkit.errors import SpecError
from tlkit.models.tiny import FAMILIES, tiny, tiny_tokenizer


def logits_of(model, ids):
    with torch.no_grad():
        return model(ids).logits


@pytest.mark.parametrize("family", FAMILIES)
def test_a_seed_is_a_model(family):
    first, again, other = tiny(family), tiny(family), tiny(family, seed=1)
    states = [model.state_dict() for model in (first, again, other)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    changed = [name for name, _ in first.named_parameters()
               if not torch.equal(states[0][name], states[2][name])]  # fmt: skip
    assert changed == [name for name, _ in first.named_parameters()]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_saved_model_is_the_same_model(family, tmp_path, ids):
    """Buffers such as rotary frequencies are right: loading makes them anew."""
    from transformers import AutoModelForCausalLM

    model = tiny(family)
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager")
    assert torch.equal(logits_of(again, ids), logits_of(model, ids))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_weight_changes_the_logits(family, ids):
    """Nothing is trivially zero: a wrong hook would show."""
    model = tiny(family, layers=2)
    before = logits_of(model, ids)
    for name, weight in model.named_parameters():
        if name.endswith(("k_proj.bias", "padding")):
            continue  # adds the same to all scores of a query, as far as rotary leaves it so
        kept = weight.clone()
        weight.zero_()
        assert (logits_of(model, ids) - before).abs().max() > 1e-4, name
        weight.copy_(kept)
    assert torch.equal(logits_of(model, ids), before)


@pytest.mark.parametrize(("family", "layers"), [("mistral", {0, 1, 2}), ("gemma3", {0, 2}),
                                                ("gemma2", {0, 2})])  # fmt: skip
def test_sliding_windows_are_shorter_than_the_prompt(family, layers, ids):
    model = tiny(family)
    with torch.no_grad():
        patterns = model(ids, output_attentions=True).attentions
    for layer, pattern in enumerate(patterns):
        reach = pattern[0, :, -1].gt(0).sum(-1)
        wanted = 4 if layer in layers else ids.shape[1]
        assert reach.tolist() == [wanted] * model.config.num_attention_heads


def test_llama_3_has_scaled_frequencies_and_grouped_keys():
    scaled, plain = tiny("llama3").model.rotary_emb.inv_freq, tiny("llama").model.rotary_emb
    ratio = plain.inv_freq / scaled
    assert ratio[0] == 1
    assert ratio[-1] == 8
    assert ((ratio > 1) & (ratio < 8)).any()
    assert tiny("llama3").config.num_key_value_heads == 2


def test_qwen3_heads_are_wider_than_the_stream_divided():
    config = tiny("qwen3").config
    assert config.head_dim != config.hidden_size // config.num_attention_heads


def test_the_global_generator_stays_where_it_was():
    before = torch.get_rng_state()
    tiny("llama")
    assert torch.equal(torch.get_rng_state(), before)


def test_depth_can_be_chosen_and_must_be_some():
    assert tiny("gpt2", layers=1).config.n_layer == 1
    with pytest.raises(SpecError, match="at least one layer, not 0"):
        tiny("gpt2", layers=0)


class TestTokenizer:
    def test_every_text_has_a_tokenization_and_comes_back(self):
        tokenizer = tiny_tokenizer()
        for text in ["naïve 😀\n", "\x00\x7f", "Mary gave a drink", "日本"]:
            ids = tokenizer(text)["input_ids"]
            assert ids[0] == tokenizer.bos_token_id == 0
            assert 0 not in ids[1:]
            assert tokenizer.decode(ids, skip_special_tokens=True) == text
            assert max(ids) < 512

    def test_names_and_places_are_one_token(self):
        tokenizer = tiny_tokenizer()
        for word in [" Mary", " John", " Paris", " Rome", " the"]:
            assert len(tokenizer(word, add_special_tokens=False)["input_ids"]) == 1
