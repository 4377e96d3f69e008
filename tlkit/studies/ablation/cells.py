"""What is changed in each cell: a component of some layers, or one head."""

from typing import Any

from tlkit.errors import SpecError
from tlkit.spec.interventions import Ablate, Intervention, Skip
from tlkit.spec.sites import Site
from tlkit.spec.sweeps import Condition, Sweep
from tlkit.studies.ablation.settings import Settings

WRITES = {
    "attn_out": ("attn_out",),
    "mlp_out": ("mlp_out",),
    "block": ("attn_out", "mlp_out"),
}
"""What a component adds to the stream. A block adds its two branches and nothing else, so a block
without them passes the stream on, whatever the family."""
SKIPPED = {"attn_out": "attn_out", "mlp_out": "mlp_out", "block": "resid_post"}


def starts(settings: Settings, n_layers: int) -> range:
    """The first layer of each window."""
    return range(n_layers - settings.windows + 1)


def labels(settings: Settings, n_layers: int) -> list[int] | list[str]:
    """What windows are called: a layer's number, or "0-3" for several."""
    if settings.windows == 1:
        return list(range(n_layers))
    return [f"{first}-{first + settings.windows - 1}" for first in starts(settings, n_layers)]


def branch_cells(settings: Settings, n_layers: int, reference: Any) -> list[Condition]:
    """One condition per component and window, windows running fastest.

    Args:
        settings: The study's choices.
        n_layers: The model's depth.
        reference: Prompts that means and other examples are taken from (None: the swept prompts).
    """
    named = labels(settings, n_layers)
    return [
        Condition(
            f"{component} {named[first]}",
            tuple(
                one
                for layer in range(first, first + settings.windows)
                for one in _of_layer(settings, component, layer, reference)
            ),
        )
        for component in settings.branches
        for first in starts(settings, n_layers)
    ]


def head_cells(
    settings: Settings, n_layers: int, n_heads: int, reference: Any
) -> list[Condition]:  # fmt: skip
    """One condition per head, heads running fastest."""
    return [
        Condition(
            f"head {layer}.{head}",
            (_ablate(settings, Site("z", layer=layer, head=head), reference),),
        )
        for layer in range(n_layers)
        for head in range(n_heads)
    ]


def sweep_of(settings: Settings, parts: Any, reference: Any) -> Sweep:
    """Every cell of a model, components first.

    Args:
        settings: The study's choices.
        parts: The model's sizes.
        reference: As for `branch_cells`.
    """
    settings.check_depth(parts.name, parts.n_layers)
    cells = branch_cells(settings, parts.n_layers, reference)
    if settings.heads:
        cells += head_cells(settings, parts.n_layers, parts.n_heads, reference)
    return Sweep.over(cells)


def _of_layer(
    settings: Settings, component: str, layer: int, reference: Any
) -> tuple[Intervention, ...]:
    if settings.value == "skip":
        return (Skip(Site(SKIPPED[component], layer=layer)),)
    return tuple(
        _ablate(settings, Site(name, layer=layer), reference) for name in WRITES[component]
    )


def _ablate(settings: Settings, site: Site, reference: Any) -> Ablate:
    value = settings.value
    if value not in ("zero", "mean", "resample"):
        raise SpecError(f"{site} cannot be ablated by {value!r}.")
    return Ablate(
        site, value, reference=None if value == "zero" else reference,
        per_position=value == "mean" and not settings.pooled,
        seed=settings.seed if value == "resample" else 0,
    )  # fmt: skip
