"""Load a model by the name that users know: `tk.HookedTransformer.from_pretrained`."""

from typing import Any

from tlkit.errors import SpecError
from tlkit.models.info import ModelInfo, remember
from tlkit.models.quiet import untouched
from tlkit.models.tiny import tiny, tiny_tokenizer
from tlkit.models.wrap import wrap


class HookedTransformer:
    """The name under which models are loaded (early version: `tiny:<family>` and HF objects)."""

    @classmethod
    def from_pretrained(cls, source: Any, *, tokenizer: Any = None, **refused: Any) -> Any:
        """Load a model."""
        with untouched():
            if isinstance(source, str) and source.startswith("tiny:"):
                model, tokenizer = tiny(source[5:]), tiny_tokenizer()
                label = source
            elif isinstance(source, str):
                raise SpecError("early version")
            else:
                model, label = source, type(source).__name__
            bridge = wrap(model, tokenizer, name=label)
        remember(bridge, ModelInfo.of(bridge, source=label))
        return bridge.requires_grad_(False)
