"""The question cut off in blocks 0 to k, in block k alone, or in a window of blocks up to k.

Luo et al. 2026 (arXiv:2601.07422) cut cumulatively. What a single block or a few blocks carry
(Geva et al. 2023, arXiv:2304.14767, cut windows) says where the question is read; the cumulative
cut alone does not. Every cut is read by the probe of layer k and has its control: the same cut of
as many random tokens.

A cumulative cut of all k is one run. Any other cut is a run of its own for each k.
"""

from collections.abc import Sequence

import numpy as np

from tlkit.engine.edits import Worked
from tlkit.studies.pathways.activations import read_under
from tlkit.studies.pathways.examples import cut
from tlkit.studies.pathways.task import Task
from tlkit.studies.probes import cross_fitted

CONTROL = " of random tokens"


def cut_names(scopes: Sequence[str], modes: Sequence[str]) -> list[str]:
    """What each cut is called in results.

    Example:
        >>> cut_names(("single", "window"), ("zero",))
        ['single zero', 'window zero']
    """
    return [f"{scope} {mode}" for scope in scopes for mode in modes]


def measure(task: Task) -> None:
    """Add the probability of "wrong" under every cut and its control."""
    if not task.probed("Cutting by layer"):
        return
    settings = task.settings
    features, layers = read_cuts(task), task.layers
    found = cross_fitted(
        features, task.wrong, task.groups, folds=settings.folds, seeds=settings.seeds,
        c=settings.c, balanced=settings.balanced,
    ).probability  # fmt: skip
    names = cut_names(settings.scopes, settings.modes)
    for variable, suffix in (("p_wrong_cut", ""), ("p_wrong_cut_control", CONTROL)):
        values = np.stack([found[name + suffix] for name in names])
        task.part.add(
            variable, ("condition", "layer", "example"), task.spread(values, layers),
            "probability", task.examples,
        )  # fmt: skip


def read_cuts(task: Task) -> dict[str, np.ndarray]:
    """States at the exact answers' last tokens, unchanged and under every cut and control.

    Returns:
        ``"base"`` and each cut's name to float32 ``[layer, example, d_model]``, of `task.layers`.
    """
    settings, layers = task.settings, task.layers
    found = {"base": task.base[layers]}
    told = task.told(f"{task.answers.name}: cuts")
    if "cumulative" in settings.scopes:
        blocks = range(task.parts.n_layers)
        found |= _read(task, _conditions(task, ["cumulative"], {"cumulative": blocks}), layers)
    others = [scope for scope in settings.scopes if scope != "cumulative"]
    rows: dict[str, list[np.ndarray]] = {}
    for done, k in enumerate(layers if others else ()):
        first = max(0, k - settings.window + 1)
        blocks_of = {"single": range(k, k + 1), "window": range(first, k + 1)}
        for name, values in _read(task, _conditions(task, others, blocks_of), [k]).items():
            rows.setdefault(name, []).append(values[0])
        told(done + 1, len(layers))
    return found | {name: np.stack(several) for name, several in rows.items()}


def _conditions(
    task: Task, scopes: Sequence[str], blocks_of: dict[str, range]
) -> dict[str, list[Worked]]:
    """Each cut's edits of each example, of the question and of random tokens."""
    return {
        f"{scope} {mode}{suffix}": [
            cut(one.question if not suffix else one.control, len(one.ids), blocks_of[scope], mode)
            for one in task.examples
        ]
        for scope in scopes
        for mode in task.settings.modes
        for suffix in ("", CONTROL)
    }


def _read(
    task: Task, conditions: dict[str, list[Worked]], layers: Sequence[int]
) -> dict[str, np.ndarray]:
    found = read_under(
        task, [one.ids for one in task.examples], [(one.last,) for one in task.examples],
        conditions, layers=layers,
    )  # fmt: skip
    return {name: values[:, :, 0] for name, values in found.items() if name != "base"}
