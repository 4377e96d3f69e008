"""Hooks that somebody else has put on a model, which only a plain forward pass would run."""

from typing import Any

from tlkit.models.bridge import unbridged


def foreign_hooks(bridge: Any) -> str | None:
    """The name of a hook that somebody else has put on the model, or None.

    TransformerLens's own wrappers use torch hooks to serve their hook points; what counts are
    functions added to hook points and torch hooks on the Hugging Face modules themselves.
    """
    for name, point in bridge.hook_dict.items():
        for handle in point.fwd_hooks:
            # OPT's wrapper puts hooks of its own on a hook point; those are not the user's.
            if _foreign(handle.user_hook):
                return name
    with unbridged(bridge) as hf:
        for name, module in hf.named_modules():
            hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
            if any(_foreign(hook) for hook in hooks):
                return name
    return None


def _foreign(hook: Any) -> bool:
    """Whether neither library put a hook there (transformers does once patterns are asked for)."""
    owner = getattr(hook, "__module__", None) or ""
    if owner == "tlkit.models.layers":  # brings a block's weights, changes nothing
        return False
    return owner.split(".")[0] not in ("transformer_lens", "transformers")
