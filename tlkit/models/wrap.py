"""Put TransformerLens's hooks around a Hugging Face model, weights and numbers unchanged."""

import copy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def with_padding(tokenizer: "PreTrainedTokenizerBase") -> "PreTrainedTokenizerBase":
    """Return a tokenizer that can pad, reading text as the given one does.

    A tokenizer without a pad token borrows a special one that it already has (end, unknown or
    start), in a copy: no token is added or becomes special, so no text is read differently. One
    without any special token stays as it is.
    """
    if tokenizer.pad_token_id is not None:
        return tokenizer
    known = tokenizer.get_vocab()
    for borrowed in (tokenizer.eos_token, tokenizer.unk_token, tokenizer.bos_token):
        if borrowed is not None and borrowed in known:
            tokenizer = copy.deepcopy(tokenizer)
            tokenizer.pad_token = borrowed
            break
    return tokenizer


def adds_bos(tokenizer: "PreTrainedTokenizerBase") -> bool:
    """Say whether the tokenizer itself puts a start token before text."""
    starts = [tokenizer.bos_token_id, getattr(tokenizer, "cls_token_id", None)]
    ids = tokenizer("a", add_special_tokens=True)["input_ids"]
    return len(ids) > 1 and ids[0] in starts


def _adds_eos(tokenizer: "PreTrainedTokenizerBase") -> bool:
    ids = tokenizer("a", add_special_tokens=True)["input_ids"]
    return len(ids) > 1 and ids[-1] == tokenizer.eos_token_id


def _config_for_bridge(model: "PreTrainedModel", family: str) -> Any:
    """Copy the model's config, with the two fields that TransformerLens insists on."""
    config = copy.deepcopy(model.config)
    config.architectures = [family]
    if getattr(config, "pad_token_id", None) is None:
        end = getattr(config, "eos_token_id", None)
        config.pad_token_id = end[0] if isinstance(end, list) else end
    return config


def attach_tokenizer(bridge: "TransformerBridge", tokenizer: "PreTrainedTokenizerBase") -> None:
    """Give a bridge its one tokenizer, and make its own `to_tokens` read text as that one does.

    TransformerLens would load the tokenizer a second time with a BOS of its own; this goes past
    it, so that `bridge.to_tokens(text)` are the tokenizer's ids.
    """
    bridge._tokenizer = tokenizer
    bridge._driver.tokenizer = tokenizer
    bos = adds_bos(tokenizer)
    bridge.cfg.tokenizer_prepends_bos = bridge.cfg.default_prepend_bos = bos
    bridge.cfg.tokenizer_appends_eos = _adds_eos(tokenizer)


def wrap(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    *,
    name: str,
    trust_remote_code: bool = False,
) -> "TransformerBridge":
    """Wrap a Hugging Face model in place as a TransformerLens model in raw mode.

    Args:
        model: The model; its modules are kept, its attention becomes eager.
        tokenizer: What reads text for it.
        name: What `bridge.cfg.model_name` says.
        trust_remote_code: Recorded for TransformerLens.

    Returns:
        The bridge, in eval mode; its logits are the model's own.
    """
    from transformer_lens.model_bridge.sources import build_bridge_from_module
    from transformer_lens.utilities.attn_implementation import force_eager_attention
    from transformer_lens.utilities.multi_gpu import count_unique_devices, find_embedding_device

    family = type(model).__name__
    model.config.architectures = [family]
    force_eager_attention(model)
    bridge = build_bridge_from_module(
        model, family, hf_config=_config_for_bridge(model, family), model_name=name
    )
    bridge.cfg.trust_remote_code = trust_remote_code
    first = find_embedding_device(model)
    if first is not None:
        bridge.cfg.device, bridge.cfg.n_devices = str(first), count_unique_devices(model)
    attach_tokenizer(bridge, with_padding(tokenizer))
    return bridge.eval()
