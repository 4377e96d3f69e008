"""The contract of the sites: each one fires, each write lands, and the stream adds up."""

from typing import Any

import torch
from torch import Tensor

from tlkit.checks.check import Check, number
from tlkit.checks.forward import bridge_logits
from tlkit.checks.samples import tolerance
from tlkit.engine.reference import capture
from tlkit.engine.run import run
from tlkit.errors import EngineError
from tlkit.models.bridge import Parts
from tlkit.prompts.prompts import Prompts
from tlkit.spec.interventions import Ablate, Patch
from tlkit.spec.readout import Readout
from tlkit.spec.sites import COMPONENTS, Site
from tlkit.spec.sweeps import Condition, Sweep

STREAMS = ("resid_pre", "resid_mid", "resid_post")


class Shift:
    """A metric: the largest change of a logit at the prompt's last position."""

    name, unit = "shift", "logits"

    def positions(self, prompt_length: int, answer_length: int, length: int) -> tuple[int, ...]:
        """The prompt's last position."""
        return (prompt_length - 1,)

    def vocabulary(self, prompts: Any) -> tuple[int, ...] | None:
        """All."""
        return None

    def __call__(self, readout: Readout) -> Tensor:
        """The change from the base run."""
        return (readout.logits - readout.base).abs().amax((1, 2))


def site_contract(
    model: Any, parts: Parts, prompts: Prompts, layers: tuple[int, ...], scale: float
) -> list[Check]:
    """Fire and overwrite every site in some layers, by the reference engine.

    Args:
        model: The model.
        parts: The same, taken apart.
        prompts: One example.
        layers: Where to try.
        scale: Size of the logits.
    """
    reasons = {component: parts.unsupported(component) for component in COMPONENTS}
    here = [component for component in COMPONENTS if not reasons[component]]
    try:
        moved = _moved(model, parts, prompts, here, layers)
    except EngineError:
        moved = {}
        for component in here:  # one by one, so that each silent site is told apart
            try:
                moved |= _moved(model, parts, prompts, [component], layers)
            except EngineError as error:
                moved[component] = str(error)
    least = tolerance(parts.dtype, scale)
    return [
        _told(parts, component, reasons[component], moved.get(component), layers, least)
        for component in COMPONENTS
    ]


def _moved(
    model: Any, parts: Parts, prompts: Prompts, components: list[str], layers: tuple[int, ...]
) -> dict[str, float | str]:
    """How far zeros at each site move the logits, in the layer where that is least.

    Raises:
        EngineError: A site's hook never fired.
    """
    sites = [
        Site(c) if c == "embed" else Site(c, layer=layer)
        for c in components
        for layer in ((0,) if c == "embed" else layers)
    ]
    places = {(site.component, site.layer or 0) for site in sites}
    capture(parts, [list(prompts.clean[0])], places)
    sweep = Sweep.over([Condition(str(site), (Ablate(site),)) for site in sites])
    found = run(model, prompts, sweep, Shift(), on="clean", engine="reference")
    moved: dict[str, float | str] = {}
    for site, value in zip(sites, found["value"].values.ravel().tolist(), strict=True):
        moved[site.component] = min(value, moved.get(site.component, value))
    return moved


def _told(
    parts: Parts, component: str, reason: str | None, moved: float | str | None,
    layers: tuple[int, ...], least: float,
) -> Check:  # fmt: skip
    name = f"site {component}"
    if reason:
        return Check(name, None, "refused", f"{parts.name} has none: {reason}.")
    if not isinstance(moved, float):
        return Check(name, False, "silent", str(moved or "It was not tried."))
    where = "the embedding" if component == "embed" else _listed(layers)
    return Check(
        name,
        moved > least,
        f"moves logits by {number(moved)}",
        f"It fires, and zeros written there change the logits, by that much at least, in {where}.",
    )


def pattern_route(parts: Parts) -> Check:
    """Say how attention patterns are written on this model."""
    if parts.writable_patterns:
        return Check("patterns are written", True, "at the pattern", "They are TransformerLens's.")
    return Check(
        "patterns are written", True, "through v and z",
        "TransformerLens shows this family's patterns only after they were used, so a changed "
        "pattern is put in as z = pattern times v.",
    )  # fmt: skip


def _listed(layers: tuple[int, ...]) -> str:
    return f"layers {', '.join(map(str, layers))}"


def stream_adds_up(parts: Parts, prompts: Prompts, layers: tuple[int, ...]) -> list[Check]:
    """Hold sums of sites to the stream that TransformerLens shows between and after them."""
    ids = [list(prompts.clean[0])]
    names = ("resid_pre", "attn_out", "mlp_out", "resid_post")
    sites = capture(parts, ids, {(c, layer) for c in names for layer in layers})
    middles, ends, scale = [], [], 0.0
    for layer in layers:
        before, attention, mlp, after = (sites[c, layer][0] for c in names)
        scale = max(scale, float(after.abs().max()))
        ends.append(float((before + attention + mlp - after).float().abs().max()))
        if not parts.parallel:
            middle = _shown_middle(parts, ids[0], layer)
            middles.append(float((before + attention - middle).float().abs().max()))
    allowed = tolerance(parts.dtype, scale)
    where = f"Largest difference in {_listed(layers)}, of a stream up to {scale:.3g}."
    first = "resid_pre + attn_out = resid_mid"
    if parts.parallel:
        none = Check(first, None, "", "The blocks run attention and MLP in parallel.")
        start = "resid_pre + attn_out"
    else:
        none = Check(first, max(middles) <= allowed, number(max(middles)), where)
        start = "resid_mid"
    return [
        none,
        Check(f"{start} + mlp_out = resid_post", max(ends) <= allowed, number(max(ends)), where),
    ]


def _shown_middle(parts: Parts, ids: list[int], layer: int) -> Tensor:
    """The stream that enters the MLP's norm, as TransformerLens's own hook shows it."""
    seen: list[Tensor] = []

    def keep(value: Tensor, hook: Any) -> None:
        seen.append(value[0].detach().clone())

    tokens = torch.tensor(ids, device=parts.device)[None]
    with torch.no_grad():
        parts.bridge.run_with_hooks(
            tokens, fwd_hooks=[(f"blocks.{layer}.hook_resid_mid", keep)], return_type=None
        )
    return seen[0]


class Distance:
    """A metric: the largest difference of the last position's logits from given ones."""

    positions = -1
    __name__ = "distance"

    def __init__(self, target: Tensor) -> None:
        self.target = target

    def __call__(self, logits: Tensor) -> Tensor:
        """The distance, from ``[1, 1, vocab]``."""
        return (logits[0, -1] - self.target).abs().max()


def whole_stream(
    model: Any, parts: Parts, prompts: Prompts, layers: tuple[int, ...], scale: float
) -> list[Check]:
    """Patch the whole clean stream into the corrupted run: the clean run must come back."""
    metric = Distance(bridge_logits(parts, prompts.clean)[0][-1])
    checks = []
    for component in STREAMS:
        if parts.unsupported(component):
            continue
        sweep = Sweep(Patch(Site(component)), layer=layers)
        found = run(model, prompts, sweep, metric, on="corrupted", engine="reference")
        left, apart = float(found["value"].max()), float(found["corrupted"].max())
        check = Check(
            f"patching all of {component} recovers the clean run",
            left <= min(tolerance(parts.dtype, scale), apart / 4),
            f"{number(left)} of {number(apart)}",
            f"What is left of the difference between clean and corrupted logits, patched in "
            f"{_listed(layers)}.",
        )
        checks.append(check)
    return checks
