"""Model files of every kind, written here from tiny models."""

import numpy as np
import pytest
import torch

from tlkit.models.tiny import tiny, tiny_tokenizer

TEXT = "When Mary and John went to the store, Mary gave a drink to"


@pytest.fixture(scope="session")
def ids():
    """Token ids of a prompt longer than every tiny sliding window."""
    return torch.tensor([tiny_tokenizer()(TEXT)["input_ids"]])


@pytest.fixture(scope="session")
def make_folder(tmp_path_factory):
    """A function that saves a tiny model and its tokenizer as a folder of its own."""

    def make(family="llama", tokenizer=True, **options):
        folder = tmp_path_factory.mktemp(family)
        tiny(family).save_pretrained(folder, **options)
        if tokenizer:
            tiny_tokenizer().save_pretrained(folder)
        return folder

    return make


def _permuted(weight, heads):
    """Order rotary pairs as llama.cpp stores them."""
    rows = weight.shape[0] // heads
    return weight.reshape(heads, 2, rows // 2, -1).swapaxes(1, 2).reshape(weight.shape)


def _tensors(model, arch):
    """Name every weight of a Llama-like model as GGUF does."""
    config = model.config
    state = {name: value.numpy() for name, value in model.state_dict().items()}
    yield "token_embd.weight", state["model.embed_tokens.weight"]
    yield "output_norm.weight", state["model.norm.weight"]
    yield "output.weight", state["lm_head.weight"]
    names = {
        "input_layernorm.weight": "attn_norm.weight",
        "post_attention_layernorm.weight": "ffn_norm.weight",
        "self_attn.o_proj.weight": "attn_output.weight",
        "mlp.gate_proj.weight": "ffn_gate.weight",
        "mlp.up_proj.weight": "ffn_up.weight",
        "mlp.down_proj.weight": "ffn_down.weight",
    }
    for letter in "qkv":
        for kind in ("weight", "bias"):
            names[f"self_attn.{letter}_proj.{kind}"] = f"attn_{letter}.{kind}"
    heads = {"q": config.num_attention_heads, "k": config.num_key_value_heads}
    for layer in range(config.num_hidden_layers):
        for theirs, ours in names.items():
            value = state.get(f"model.layers.{layer}.{theirs}")
            if value is None:
                continue
            letter = ours.removeprefix("attn_")[0]
            if arch == "llama" and letter in heads and ours.startswith(("attn_q", "attn_k")):
                value = _permuted(value, heads[letter])
            yield f"blk.{layer}.{ours}", value


@pytest.fixture(scope="session")
def write_gguf():
    """A function that writes a tiny Llama-like model as an fp32 GGUF file."""
    import gguf

    def write(model, path, arch, *, extra=None, tensors=None, leave_out=()):
        config = model.config
        writer = gguf.GGUFWriter(str(path), arch)
        writer.add_context_length(config.max_position_embeddings)
        writer.add_embedding_length(config.hidden_size)
        writer.add_block_count(config.num_hidden_layers)
        writer.add_feed_forward_length(config.intermediate_size)
        writer.add_head_count(config.num_attention_heads)
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
        writer.add_vocab_size(config.vocab_size)
        if arch == "llama":
            writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
        _add_tokenizer(writer, config.vocab_size)
        for key, value in (extra or {}).items():
            if isinstance(value, str):
                writer.add_string(key, value)
            elif isinstance(value, int):
                writer.add_uint32(key, value)
            else:
                writer.add_float32(key, value)
        for name, value in {**dict(_tensors(model, arch)), **(tensors or {})}.items():
            if name not in leave_out:
                writer.add_tensor(name, np.ascontiguousarray(value))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return write


def _add_tokenizer(writer, vocabulary):
    tokenizer = tiny_tokenizer()
    tokens = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    specials = set(tokenizer.all_special_tokens)
    kinds = [3 if token in specials else 1 for token in tokens]
    spare = vocabulary - len(tokens)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens + [f"[spare{n}]" for n in range(spare)])
    writer.add_token_types(kinds + [5] * spare)
    merges = tokenizer.backend_tokenizer.to_str()
    import json

    writer.add_token_merges([" ".join(pair) for pair in json.loads(merges)["model"]["merges"]])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)
    writer.add_add_bos_token(True)
    writer.add_chat_template(tokenizer.chat_template)
