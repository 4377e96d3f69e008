"""The models of a study: loaded already, or loaded one at a time when their turn comes."""

from collections.abc import Mapping, Sequence
from typing import Any

from tlkit.errors import SpecError


def named(models: Any) -> dict[str, Any]:
    """Models by the names that results give them.

    Args:
        models: A loaded model, a source such as a hub id, several sources, or a mapping of names
            to models, sources or functions that load a model.

    Raises:
        SpecError: There is none, or two have one name.
    """
    if isinstance(models, Mapping):
        found = dict(models)
    elif isinstance(models, str):
        found = {models: models}
    elif isinstance(models, Sequence):
        if not all(isinstance(one, str) for one in models):
            raise SpecError("Several loaded models need names: give a mapping of names to models.")
        found = {one: one for one in models}
        if len(found) < len(models):
            raise SpecError("A model is named twice; give each once.")
    else:
        about = getattr(getattr(models, "cfg", None), "model_name", None)
        found = {str(about or "model"): models}
    if not found:
        raise SpecError("Layer probes need a model; none was given.")
    return found


def loaded(one: Any) -> Any:
    """A model, from itself, a source, or a function that loads it."""
    if isinstance(one, str):
        from tlkit.models.load import HookedTransformer

        return HookedTransformer.from_pretrained(one)
    return one() if callable(one) and not hasattr(one, "cfg") else one
