"""The table of families in ``docs/families.md``, written by trying each one.

``python -m tlkit.checks.families`` writes it again.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tlkit.checks.check import number
from tlkit.checks.samples import Projection, sample_pairs
from tlkit.checks.twins import compare, sample_conditions
from tlkit.engine.route import route_of
from tlkit.models.bridge import Parts
from tlkit.models.load import HookedTransformer
from tlkit.models.tiny import FAMILIES, tiny
from tlkit.spec.sites import COMPONENTS
from tlkit.spec.sweeps import Sweep

PAGE = Path("docs") / "families.md"

_HEAD = """# Families

Written by `python -m tlkit.checks.families`, which tries a tiny random model of each family in
fp32. "To Hugging Face" is the largest difference between a logit of the hooked model and of a
Hugging Face model of the same weights that was never hooked; "to the reference" is the largest
difference between the packed engine and one hooked forward pass per cell, over a cell of every
site and both kinds of knockout, in effects of about 1. A family without a packed route is run by
the reference engine: the same numbers, one forward pass per cell. `tlkit check --model M` tries
the same and more on your own model.

| family | Hugging Face's class | route | to Hugging Face | to the reference | patterns |
| --- | --- | --- | --- | --- | --- |
"""

_PATTERNS = """
Patterns that are read-only in TransformerLens are put in by tlkit as z = pattern times v: the
same result, one more forward pass per cell in the reference engine.
"""


@dataclass(frozen=True)
class Row:
    """What was found of one family.

    Attributes:
        family: Its name in ``tiny:<family>``.
        architecture: Hugging Face's class.
        packed: Whether the packed engine serves it.
        reason: Why not.
        to_hugging_face, to_reference: Largest differences; None where there is no packed route.
        refused: Sites that it lacks, with the reason.
        writable: Whether TransformerLens's pattern hook can be written.
    """

    family: str
    architecture: str
    packed: bool
    reason: str
    to_hugging_face: float
    to_reference: float | None
    refused: dict[str, str]
    writable: bool


def try_family(family: str, seed: int = 0) -> Row:
    """Measure one family on its tiny model."""
    model: Any = HookedTransformer.from_pretrained(f"tiny:{family}", device="cpu")
    parts = Parts(model)
    pairs = sample_pairs(parts, seed)
    apart = tiny(family)
    with torch.no_grad():
        gap = max(
            float((model(ids)[0] - apart(ids).logits[0]).abs().max())
            for ids in (torch.tensor(row)[None] for row in pairs.clean)
        )
    route = route_of(parts)
    difference = None
    if route.packed:
        sweep = Sweep.over(sample_conditions(parts, pairs, seed))
        metric = Projection(int(model.cfg.d_vocab))
        difference = compare(model, pairs, sweep, metric).gap
    refused = {c: reason for c in COMPONENTS if (reason := parts.unsupported(c))}
    return Row(
        family, parts.name, route.packed, route.reason, gap, difference, refused,
        parts.writable_patterns,
    )  # fmt: skip


def page(rows: list[Row]) -> str:
    """The page, in Markdown."""
    lines = [
        f"| {row.family} | {row.architecture} | {'packed' if row.packed else 'reference'} | "
        f"{number(row.to_hugging_face)} | "
        f"{'-' if row.to_reference is None else number(row.to_reference)} | "
        f"{'written' if row.writable else 'through v and z'} |"
        for row in rows
    ]
    missing = [f"- {row.family}: {_refused(row)}" for row in rows if row.refused]
    unpacked = [f"- {row.family}: {row.reason}." for row in rows if not row.packed]
    parts = [_HEAD + "\n".join(lines), _PATTERNS.rstrip()]
    if missing:
        parts.append("\n## Sites that a family lacks\n\n" + "\n".join(missing))
    if unpacked:
        parts.append("\n## Why a family has no packed route\n\n" + "\n".join(unpacked))
    return "\n".join(parts) + "\n"


def _refused(row: Row) -> str:
    by_reason: dict[str, list[str]] = {}
    for site, reason in row.refused.items():
        by_reason.setdefault(reason, []).append(f"`{site}`")
    return "; ".join(f"{', '.join(sites)}: {why}" for why, sites in by_reason.items()) + "."


def write(path: Path = PAGE) -> None:
    """Try every family and write the page."""
    path.write_text(page([try_family(family) for family in FAMILIES]), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE)
