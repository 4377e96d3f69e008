"""Tiny random models with the real structure of each family, for tests and `tlkit check`.

Nothing here is trained. Every weight is drawn from a generator of its own, so a seed gives the
same model on every call and the global generators stay where they were. Norms and biases are
moved off their initial ones and zeros: a wrong hook shows in the numbers.
"""

from typing import TYPE_CHECKING, Any

from tlkit.errors import SpecError
from tlkit.models.quiet import untouched
from tlkit.models.tiny_text import BOS_ID, EOS_ID, PAD_ID, VOCAB, tiny_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["FAMILIES", "tiny", "tiny_tokenizer"]

WIDTH, HEADS, KV_HEADS, HIDDEN, POSITIONS = 64, 4, 2, 128, 128
WEIGHT_STD = 0.08  # four times what transformers draws, so that attention is far from uniform
SHIFT_STD = 0.1  # of norm weights around where they start, and of biases

_COMMON: dict[str, Any] = {
    "hidden_size": WIDTH,
    "num_attention_heads": HEADS,
    "intermediate_size": HIDDEN,
    "max_position_embeddings": POSITIONS,
}
_GROUPED = _COMMON | {"num_key_value_heads": KV_HEADS}
_GEMMA = _GROUPED | {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 4}
_LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}

# family: (transformers' config class, what it is given beside the vocabulary and the depth)
_RECIPES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2Config", {"n_embd": WIDTH, "n_head": HEADS, "n_positions": POSITIONS}),
    "gptj": (
        "GPTJConfig",
        {"n_embd": WIDTH, "n_head": HEADS, "n_positions": POSITIONS, "rotary_dim": 8},
    ),
    "neox": ("GPTNeoXConfig", _COMMON),
    "llama": ("LlamaConfig", _COMMON),
    "llama3": ("LlamaConfig", _GROUPED | {"rope_parameters": _LLAMA3_ROPE}),
    "mistral": ("MistralConfig", _GROUPED | {"sliding_window": 4}),
    "qwen2": ("Qwen2Config", _GROUPED),
    "qwen3": ("Qwen3Config", _GROUPED | {"head_dim": 32}),
    "gemma2": ("Gemma2Config", _GEMMA),
    "gemma3": ("Gemma3TextConfig", _GEMMA | {"sliding_window_pattern": 2}),
    "opt": (
        "OPTConfig",
        {
            "hidden_size": WIDTH,
            "word_embed_proj_dim": WIDTH,
            "ffn_dim": HIDDEN,
            "num_attention_heads": HEADS,
            "max_position_embeddings": POSITIONS,
        },
    ),
    "phi": ("PhiConfig", _COMMON),
    "phi3": ("Phi3Config", _GROUPED),
    "falcon": (
        "FalconConfig",
        {"hidden_size": WIDTH, "num_attention_heads": HEADS, "ffn_hidden_size": HIDDEN},
    ),
    "bloom": ("BloomConfig", {"hidden_size": WIDTH, "n_head": HEADS}),
    "mixtral": (
        "MixtralConfig",
        _GROUPED | {"num_local_experts": 4, "num_experts_per_tok": 2},
    ),
}

FAMILIES: tuple[str, ...] = tuple(_RECIPES)


def _config(family: str, layers: int) -> Any:
    import transformers

    name, fields = _RECIPES[family]
    depth = "n_layer" if "n_head" in fields else "num_hidden_layers"
    return getattr(transformers, name)(
        **fields,
        **{depth: layers},
        vocab_size=VOCAB,
        bos_token_id=BOS_ID,
        eos_token_id=EOS_ID,
        pad_token_id=PAD_ID,
        attn_implementation="eager",
    )


def _draw(model: "PreTrainedModel", seed: int) -> None:
    """Fill every parameter from a generator of its own; buffers keep what they were built with."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim >= 2:
                parameter.copy_(noise * WEIGHT_STD)
            else:
                parameter.add_(noise * SHIFT_STD)


def tiny(family: str, *, seed: int = 0, layers: int = 3) -> "PreTrainedModel":
    """Build a tiny random model of a family, as transformers builds the real one.

    Args:
        family: One of `FAMILIES`. `llama3` has grouped keys and its rope scaling, `mistral` a
            sliding window of 4, `gemma2` and `gemma3` sliding and global layers in turn, `qwen3`
            heads wider than d_model / n_heads.
        seed: Seed of the weights; the same seed gives the same weights.
        layers: Number of blocks.

    Returns:
        A Hugging Face model in eval mode, fp32, eager attention, without gradients.

    Raises:
        SpecError: The family is not one of `FAMILIES`.
    """
    if family not in _RECIPES:
        raise SpecError(f"There is no tiny model of {family!r}; there are {', '.join(FAMILIES)}.")
    if layers < 1:
        raise SpecError(f"A tiny model needs at least one layer, not {layers}.")
    with untouched():
        import torch
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_config(_config(family, layers), dtype=torch.float32)
    _draw(model, seed)
    model.config.architectures = [type(model).__name__]
    return model.eval().requires_grad_(False)
