"""The packed engine held to its slow twin, on a sample of cells of several sites."""

import random
from dataclasses import dataclass
from typing import Any

import numpy as np

from tlkit.checks.check import Check, number
from tlkit.checks.samples import Projection, tolerance
from tlkit.engine.route import Route
from tlkit.engine.run import run
from tlkit.models.bridge import Parts
from tlkit.prompts.prompts import Prompts
from tlkit.spec.attention import Knockout
from tlkit.spec.interventions import Ablate, Patch
from tlkit.spec.sites import Site
from tlkit.spec.sweeps import Condition, Sweep


@dataclass(frozen=True)
class Comparison:
    """The same sweep by both engines.

    Attributes:
        gap: Largest difference of a value; infinite where only one of them is NaN.
        effect: Largest effect, so that agreement on nothing shows.
        cells: Values compared.
        packed, reference: The two datasets.
    """

    gap: float
    effect: float
    cells: int
    packed: Any
    reference: Any


def compare(model: Any, prompts: Prompts, sweep: Sweep, metrics: Any, **options: Any) -> Comparison:
    """Run a sweep by both engines; ``options`` are those of `tk.run`."""
    packed = run(model, prompts, sweep, metrics, engine="packed", **options)
    reference = run(model, prompts, sweep, metrics, engine="reference", **options)
    ours, theirs = packed["value"].values, reference["value"].values
    if (np.isnan(ours) != np.isnan(theirs)).any():
        gap = np.inf
    else:
        gap = float(np.nan_to_num(np.abs(ours - theirs)).max())
    effect = float(np.nan_to_num(np.abs(reference["effect"].values)).max())
    return Comparison(gap, effect, ours.size, packed, reference)


def sample_conditions(parts: Parts, prompts: Prompts, seed: int) -> list[Condition]:
    """One random cell of every site that the model has, and of both kinds of knockout."""
    draw = random.Random(seed)
    shortest = min(map(len, prompts.ids("corrupted")))

    def layer() -> int:
        return draw.randrange(parts.n_layers)

    found = [Condition("embed", (Patch(Site("embed")),))]
    for component in ("resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out", "mlp_post"):
        if not parts.unsupported(component):
            site = Site(component, layer=layer(), pos=draw.randrange(shortest // 2, shortest))
            found.append(Condition(str(site), (Patch(site),)))
    for component in ("z", "q", "k", "v"):
        heads = parts.n_kv_heads if component in ("k", "v") else parts.n_heads
        site = Site(component, layer=layer(), head=draw.randrange(heads))
        found.append(Condition(str(site), (Patch(site),)))
    for component in ("pattern", "attn_scores"):
        if not parts.unsupported(component):
            site = Site(component, layer=layer(), head=draw.randrange(parts.n_heads))
            found.append(Condition(str(site), (Patch(site),)))
    found.append(Condition("mean", (Ablate(Site("mlp_out", layer=layer()), value="mean"),)))
    for mode in ("zero", "-inf"):
        cut = Knockout(keys=(1, 2), layers=layer(), mode=mode)
        found.append(Condition(f"knockout {mode}", (cut,)))
    return found


def route_taken(route: Route) -> Check:
    """Say which engine serves the model."""
    if route.packed:
        how = "Sweeps compute only what changes, many cells at once."
        return Check("route", True, "packed", how)
    return Check("route", None, "reference", f"Sweeps run one cell at a time: {route.reason}.")


def packed_equals_reference(
    model: Any, parts: Parts, prompts: Prompts, route: Route, scale: float, seed: int
) -> Check:
    """Run a sample of cells by both engines."""
    name = "packed engine equals the reference engine"
    if not route.packed:
        return Check(name, None, "", "This model is run by the reference engine.")
    sweep = Sweep.over(sample_conditions(parts, prompts, seed))
    metric = Projection(int(parts.bridge.cfg.d_vocab))
    found = compare(model, prompts, sweep, metric)
    allowed = min(tolerance(parts.dtype, scale), found.effect / 4)
    return Check(
        name,
        found.gap <= allowed,
        f"{number(found.gap)} of effects up to {number(found.effect)}",
        f"Largest difference in {found.cells} values of {len(sweep.conditions())} cells, one of "
        f"each site and of both knockouts.",
    )
