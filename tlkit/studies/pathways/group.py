"""The group reading: examples are grouped by whether the knockout turns a probe's verdict.

Method: Luo et al. 2026 (arXiv:2601.07422). At each layer k a probe tells wrong answers from right
ones by the state at the exact answer's last token. The knockout cuts every later token off from
the exact question tokens in blocks 0 to k. An example whose verdict turns is Q-anchored at k, any
other A-anchored; ΔP is how the probability of the class that was first predicted changes.

Groups that are chosen by the very number that is then plotted differ by that choice alone. So the
same is also measured with held-out groups: a probe from one half of the questions chooses the
group, a probe from the other half measures ΔP, and neither has seen the example.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tlkit.engine.states import states
from tlkit.engine.values import Progress
from tlkit.models.bridge import Parts
from tlkit.studies.pathways.examples import Example, Mode, cut, sequences_of
from tlkit.studies.probes import STRENGTH, cross_fitted, halves

CUT, CONTROL = "knockout", "control"


@dataclass(frozen=True)
class Probing:
    """How probes are trained.

    Attributes:
        folds: Folds of questions.
        seeds: One division into folds for each.
        c: Inverse strength of the L2 penalty.
        balanced: Whether classes are weighed alike.
        seed: Divides the questions into halves.
    """

    folds: int = 5
    seeds: tuple[int, ...] = (0, 1, 2)
    c: float = STRENGTH
    balanced: bool = True
    seed: int = 0


def read(
    parts: Parts, examples: Sequence[Example], *, mode: Mode, packed: bool = True,
    budget: int | None = None, progress: Progress | None = None,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Read the states at the exact answers' last tokens, unchanged and under both knockouts.

    Returns:
        ``"base"``, ``"knockout"`` and ``"control"`` to float32 ``[layer, example, d_model]``;
        NaN where an example has no control.
    """
    layers = range(parts.n_layers)
    found = states(
        parts,
        sequences_of(examples),
        [(example.last,) for example in examples],
        [("resid_post", layer) for layer in layers],
        {
            CUT: [cut(e.question, len(e.ids), layers, mode) for e in examples],
            CONTROL: [cut(e.control, len(e.ids), layers, mode) for e in examples],
        },
        packed=packed,
        budget=budget,
        progress=progress,
    )
    return {
        name: np.stack([
            np.stack([row[0].float().cpu().numpy() for row in some["resid_post", layer]])
            for layer in layers
        ])
        for name, some in found.items()
    }  # fmt: skip


def group_reading(
    features: Mapping[str, np.ndarray], wrong: np.ndarray, groups: Sequence[str],
    probing: Probing, progress: Progress | None = None,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Train probes and ask them, of every example by probes that have not seen its question.

    Args:
        features: ``"base"``, ``"knockout"`` and ``"control"``, ``[layer, example, feature]``.
        wrong: bool ``[example]``: class 1.
        groups: Each example's question.
        probing: How probes are trained.
        progress: Called with (sets of probes done, sets of probes in all).

    Returns:
        ``p_wrong``, ``p_wrong_knockout``, ``p_wrong_control`` (probabilities),
        ``delta_p``, ``delta_p_control``, ``delta_p_held_out``, ``delta_p_control_held_out``
        (percentage points), ``q_anchored``, ``q_anchored_held_out`` (bool), all
        ``[layer, example]``; ``probe_auc``, ``probe_auc_control`` ``[layer, seed]``.
    """
    wrong = np.asarray(wrong).astype(int)
    first = halves(wrong, groups, probing.seed)
    variants: list[dict[str, Any]] = [{"control": True}, {"among": first}, {"among": ~first}]
    done = []
    for variant in variants:
        done.append(
            cross_fitted(
                features, wrong, groups, folds=probing.folds, seeds=probing.seeds, c=probing.c,
                balanced=probing.balanced, **variant,
            )
        )  # fmt: skip
        if progress:
            progress(len(done), len(variants))
    whole, choosing, measuring = done
    return {
        "p_wrong": whole.probability["base"],
        "p_wrong_knockout": whole.probability[CUT],
        "p_wrong_control": whole.probability[CONTROL],
        "delta_p": delta_p(whole.probability["base"], whole.probability[CUT]),
        "delta_p_control": delta_p(whole.probability["base"], whole.probability[CONTROL]),
        "delta_p_held_out": delta_p(measuring.probability["base"], measuring.probability[CUT]),
        "delta_p_control_held_out": delta_p(
            measuring.probability["base"], measuring.probability[CONTROL]
        ),
        "q_anchored": turned(whole.probability["base"], whole.probability[CUT]),
        "q_anchored_held_out": turned(choosing.probability["base"], choosing.probability[CUT]),
        "probe_auc": whole.auc,
        "probe_auc_control": whole.auc_control,
    }


def delta_p(base: np.ndarray, changed: np.ndarray) -> np.ndarray:
    """Change of the probability of the class that was first predicted, in percentage points.

    Example:
        >>> delta_p(np.array([0.9, 0.2]), np.array([0.4, 0.3])).round(6).tolist()
        [-50.0, -10.0]
    """
    return 100.0 * np.where(base > 0.5, changed - base, base - changed)


def turned(base: np.ndarray, changed: np.ndarray) -> np.ndarray:
    """Whether the predicted class changed."""
    return (base > 0.5) != (changed > 0.5)
