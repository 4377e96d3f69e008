"""Some heads' average attention per prompt token, ready to be drawn."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tlkit.errors import SpecError
from tlkit.results.schema import build

SHARED = 0.5


def lines(
    ds: Any, heads: Sequence[tuple[int, int]], *, one_based: bool = False,
    prompt: int | None = None,
) -> Any:  # fmt: skip
    """The curves of chosen heads, a panel each: weight against the original prompt's tokens.

    Prompts are aligned at their first token. Positions that fewer than half of them have are left
    out, for their means would be of other prompts.

    Args:
        ds: What `run` gave.
        heads: Pairs of (layer, head), counted from 0 as everywhere in tlkit.
        one_based: Whether the panels' names count from 1, as the paper does.
        prompt: One prompt alone, with its tokens; the mean over all if None.

    Returns:
        A Dataset: ``attention_weight`` (group, condition, pos, example); the groups are the heads.

    Raises:
        SpecError: There is no such head, layer or prompt.
    """
    if "attention_weight" not in ds or "example" not in ds.dims:
        raise SpecError("lines draws what tk.conditions.run gave; this is another dataset.")
    if not heads:
        raise SpecError("lines needs heads to draw, such as [(0, 3)].")
    layers, count = ds["layer"].values.tolist(), ds.sizes["head"]
    for layer, head in heads:
        if layer not in layers or not 0 <= head < count:
            raise SpecError(
                f"There is no head {layer}.{head}: layers {min(layers)} to {max(layers)} were "
                f"read, with heads 0 to {count - 1}."
            )
    if prompt is not None and not 0 <= prompt < ds.sizes["example"]:
        raise SpecError(f"There is no prompt {prompt}; there are {ds.sizes['example']}.")
    some = ds["attention_weight"]
    if prompt is not None:
        some = some.isel(example=[prompt])
    some = some.transpose("condition", "layer", "head", "pos", "example")
    values = np.stack([some.sel(layer=layer, head=head).values for layer, head in heads])
    there = ~np.isnan(values).all((0, 1))
    kept = np.flatnonzero(there.mean(-1) >= SHARED)
    shift = int(one_based)
    labels: dict[str, Any] = {
        "group": [f"layer {layer + shift}, head {head + shift}" for layer, head in heads],
        "condition": ds["condition"].values.tolist(),
        "pos": kept.tolist(),
    }
    if "token" in ds.coords:
        tokens = ds["token"].values if prompt is None else ds["token"].values[[prompt]]
        labels["token"] = (("example", "pos"), tokens[:, kept])
    counted = "from 1" if one_based else "from 0"
    return build(
        {"attention_weight": (("group", "condition", "pos", "example"), values[:, :, kept])},
        labels,
        {**ds.attrs, "study": "condition lines", "counted": f"layers and heads {counted}"},
    )
