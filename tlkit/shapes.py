"""The names of axes, in one place.

Tensors inside the engine use: ``example`` (one prompt), ``pos`` (token position), ``d_model``,
``head`` (query head), ``kv_head`` (key/value head), ``d_head``, ``d_mlp``, ``vocab``,
``query`` and ``key`` (positions of an attention pattern), ``row`` (one packed token),
``lane`` (one condition on one example).
Results use the dimensions in ``DIMENSIONS``.
"""

DIMENSIONS = (
    "metric",
    "layer",
    "pos",
    "head",
    "kv_head",
    "query",
    "key",
    "example",
    "model",
    "site",
    "condition",
    "dataset",
    "document",
    "group",
    "kind",
    "control",
    "fold",
    "seed",
    "detector",
)
