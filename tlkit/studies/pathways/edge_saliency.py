"""On which attention edges from the question a verdict hangs.

Saliency of an edge: S = |A · ∂L/∂A| (Wang et al. 2023, arXiv:2305.14160; used so by Luo et al.
2026, arXiv:2601.07422), with A its attention weight and L the detection loss: the binary
cross-entropy of a probe on the stream behind one block, at the exact answer's last token, against
whether the answer is wrong. It is summed over heads and over edges: *exact*, from the exact
question's tokens to the exact answer's; *full*, from all of the question's to all of the answer's
up to there. The probe is at the layer that tells best, and has not seen the question.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tlkit.engine.edge_gradients import edge_gradients
from tlkit.engine.route import route_of
from tlkit.studies.pathways.examples import Example
from tlkit.studies.pathways.task import Task
from tlkit.studies.probes import Probe, divided

POINTS = 200
"""Places at which a density is computed."""


def measure(task: Task) -> None:
    """Add the saliency of question edges, per block and example."""
    if not task.probed("Saliency"):
        return
    if not route_of(task.parts).packed:
        task.part.reasons.append(
            "Saliency needs attention that can be computed from outside, which this model's cannot."
        )
        return
    layer = int(np.nanargmax(task.part.variables["probe_auc"][1].mean(-1)))
    shape = (task.parts.n_layers, len(task.examples))
    exact, full = np.full((2, *shape), np.nan, np.float32)
    told = task.told(f"{task.answers.name}: saliency")
    for number, (one, probe) in enumerate(zip(task.examples, probes(task, layer), strict=True)):
        asked = task.answers.items[one.index].asked
        rows = saliency(task.parts, one, tuple(range(*asked)), layer, probe)
        exact[: layer + 1, number], full[: layer + 1, number] = rows
        told(number + 1, len(task.examples))
    task.part.counts["saliency of the probe at layer"] = layer
    dims = ("layer", "example")
    task.part.add("saliency", dims, exact, "nats", task.examples)
    task.part.add("saliency_full", dims, full, "nats", task.examples)


def probes(task: Task, layer: int) -> list[Probe]:
    """For each example the probe at a layer that has not seen its question."""
    settings, labels, x = task.settings, task.wrong.astype(int), task.base[layer]
    found: list[Probe | None] = [None] * len(labels)
    for train, test in divided(labels, task.groups, settings.folds, settings.seeds[0]):
        probe = Probe.fit(x[train], labels[train], c=settings.c, balanced=settings.balanced)
        for i in test:
            found[i] = probe
    return [probe for probe in found if probe is not None]


def saliency(
    parts: Any, one: Example, asked: tuple[int, ...], layer: int, probe: Probe
) -> tuple[list[float], list[float]]:
    """Summed saliency of exact and of full edges in blocks 0 to ``layer``.

    Args:
        parts: The model.
        one: The example.
        asked: Positions of the whole question.
        layer: The block behind which the probe reads.
        probe: The probe.
    """
    patterns, gradients = edge_gradients(
        parts, list(one.ids), layer, lambda stream: detection_loss(stream[-1], probe, one.wrong)
    )
    edges = [(pattern * slope).abs().sum(0) for pattern, slope in zip(patterns, gradients,
                                                                      strict=True)]  # fmt: skip
    said, exact = range(one.prompt, len(one.ids)), range(*one.exact)
    return _summed(edges, exact, one.question), _summed(edges, said, asked)


def detection_loss(state: Tensor, probe: Probe, wrong: bool) -> Tensor:
    """Binary cross-entropy of a probe on one state ``[d_model]``, nats."""
    weight = torch.tensor(probe.weight, dtype=torch.float32, device=state.device)
    logit = state.float() @ weight + probe.bias
    return torch.nn.functional.softplus(-logit if wrong else logit)


def _summed(edges: list[Tensor], queries: Any, keys: Any) -> list[float]:
    """Sum ``[query, key]`` of each block over some queries and keys."""
    return [float(one[list(queries)][:, list(keys)].sum()) for one in edges]


def saliency_density(ds: Any, *, full: bool = False, points: int = POINTS) -> Any:
    """How examples lie along saliency: one mode near 0 and one far from it, if two kinds are there.

    Args:
        ds: What `run` gave, its part ``"saliency"`` measured.
        full: Of the full edges rather than the exact ones.
        points: At how many places.

    Returns:
        A Dataset over (model,) dataset and ``saliency``: ``density``, of the sum over blocks,
        by a Gaussian kernel of Scott's width (per nat). NaN where fewer than two examples differ.

    Raises:
        SpecError: The part was not measured.
    """
    from tlkit.results.schema import build
    from tlkit.studies.pathways.reading import leading, require

    name = "saliency_full" if full else "saliency"
    require(ds, name, "saliency")
    lead = leading(ds)
    total = ds[name].sum("layer", min_count=1).transpose(*lead, "example")
    grid = np.linspace(0.0, float(total.max()), points)
    values = np.stack([_density(row, grid) for row in total.values.reshape(-1, total.shape[-1])])
    labels = {dim: ds[dim].values.tolist() for dim in lead}
    return build(
        {"density": ((*lead, "saliency"), values.reshape(*total.shape[:-1], points), "per nat")},
        {**labels, "saliency": grid.tolist()},
        {**ds.attrs, "study": "pathways saliency"}, axes=("saliency",),
    )  # fmt: skip


def _density(row: np.ndarray, grid: np.ndarray) -> np.ndarray:
    from scipy.stats import gaussian_kde

    there = row[~np.isnan(row)].astype(np.float64)
    if len(there) < 2 or np.ptp(there) == 0:
        return np.full(grid.shape, np.nan)
    return gaussian_kde(there)(grid)
