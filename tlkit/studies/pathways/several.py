"""Several models in one study: loaded already, or each loaded when its turn comes."""

from collections.abc import Mapping
from typing import Any

from tlkit.errors import SpecError


def models_of(model: Any) -> dict[str, Any]:
    """Models by name; empty where one loaded model was given.

    Raises:
        SpecError: There is none, or loaded models have no names.
    """
    if isinstance(model, Mapping):
        found = {str(name): one for name, one in model.items()}
    elif isinstance(model, list | tuple):
        if not all(isinstance(one, str) for one in model):
            raise SpecError("Several loaded models need names: give a mapping of names to models.")
        if len(set(model)) < len(model):
            raise SpecError("A model is named twice; give each once.")
        found = {one: one for one in model}
    elif isinstance(model, str):
        found = {model: model}
    else:
        return {}
    if not found or "" in found:
        raise SpecError("pathways needs a model with a name; none was given.")
    return found


def loaded(one: Any) -> Any:
    """A model, from itself, a source, or a function that loads it."""
    if isinstance(one, str):
        from tlkit.models.load import HookedTransformer

        return HookedTransformer.from_pretrained(one)
    return one() if callable(one) and not hasattr(one, "cfg") else one
