"""The attention that spans of the prompts are given, as one number a head and prompt."""

from typing import Any

import numpy as np

from tlkit.errors import SpecError
from tlkit.prompts.prompts import Prompts


def on_span(ds: Any, prompts: Prompts, name: str) -> Any:
    """Add the attention on a named span, which `changed_heads` can test like any statistic.

    Args:
        ds: What `run` gave.
        prompts: The prompts that it was run on, with the span.
        name: The span's name.

    Returns:
        The Dataset with ``span_weight`` (condition, layer, head, example): the sum over the span's
        tokens of the mean weight that later tokens give each of them. NaN without a span.

    Raises:
        SpecError: There is no such span, or these are other prompts.
    """
    if name not in prompts.spans:
        has = ", ".join(prompts.spans) or "none"
        raise SpecError(f"The prompts have no span {name!r}; they have {has}.")
    if len(prompts) != ds.sizes["example"] or prompts.hash() != ds.attrs.get("prompt_hash"):
        raise SpecError("These are not the prompts that the dataset is about.")
    weights = ds["attention_weight"].transpose("condition", "layer", "head", "example", "pos")
    values = np.full(weights.shape[:-1], np.nan, np.float32)
    for example, span in enumerate(prompts.spans[name]):
        if span is not None:
            values[..., example] = weights.values[..., example, span.start : span.stop].sum(-1)
    dims = ("condition", "layer", "head", "example")
    return ds.assign(span_weight=(dims, values, {"units": "fraction"})).assign_attrs(span=name)
