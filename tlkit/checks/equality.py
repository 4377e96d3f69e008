"""Logits: the hooked model against Hugging Face's modules, and a padded batch against its rows."""

import torch

from tlkit.checks.check import Check, number
from tlkit.checks.forward import Rows, bridge_logits, largest_gap, own_logits
from tlkit.checks.samples import tolerance
from tlkit.engine.readout import logits_of
from tlkit.engine.record import record
from tlkit.engine.route import Route
from tlkit.models.bridge import Parts


def against_hugging_face(parts: Parts, rows: Rows) -> Check:
    """Hold the hooked model's logits to those of the model's own modules."""
    gap, scale = largest_gap(bridge_logits(parts, rows), own_logits(parts, rows))
    allowed = tolerance(parts.dtype, scale)
    return Check(
        "logits equal Hugging Face's",
        gap <= allowed,
        f"{number(gap)} of logits up to {scale:.3g}",
        f"Largest difference between the hooked {parts.name} and its own modules; up to "
        f"{number(allowed)} is rounding.",
    )


def padded_batch(parts: Parts, rows: Rows, route: Route) -> Check:
    """Hold rows of unequal length, run together, to the same rows run alone."""
    name = "a padded batch equals its rows"
    if not route.packed:
        return Check(name, None, "rows run alone", "This model is run one row at a time.")
    run = record(parts, [list(row) for row in rows])
    with torch.no_grad():
        together = [
            logits_of(parts, run.stream[-1][i, : len(row)], None) for i, row in enumerate(rows)
        ]
    gap, scale = largest_gap(together, bridge_logits(parts, rows))
    lengths = ", ".join(str(len(row)) for row in rows)
    return Check(
        name,
        gap <= tolerance(parts.dtype, scale),
        f"{number(gap)} of logits up to {scale:.3g}",
        f"Largest difference between rows of {lengths} tokens run together and alone.",
    )
