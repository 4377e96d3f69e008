"""What the two groups know, and whether a probe can tell the groups apart.

Knowledge boundary (Luo et al. 2026, arXiv:2601.07422, section 4): accuracy, how often the model
says that it does not know when it may, and how well known the question's subject is. The groups
are those of the group reading at each layer. That a model may say so is put behind the question
(`INVITED`), in a second answer; the first answer is what is judged right or wrong.

Self-awareness: a probe on the same state that tells Q-anchored from A-anchored examples, at each
layer, tested on questions that it has not seen. Its control was taught shuffled groups.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tlkit.prompts.qa import QA
from tlkit.studies.answers import answer, how_asked
from tlkit.studies.pathways.task import Task
from tlkit.studies.probes import cross_fitted

INVITED = '{question} If you do not know the answer, say "I don\'t know".'
"""What stands in place of the question when the model may say that it does not know."""


def measure(task: Task) -> None:
    """Add what each example says of knowledge, and the AUC of self-awareness."""
    says = unknowing(task)
    part, examples = task.part, task.examples
    asked = [task.answers.items[one.index].question for one in examples]
    known = [np.nan if one.popularity is None else one.popularity for one in asked]
    unknown = np.array([float(says[one.question]) for one in asked], np.float32)
    for name, values, unit in (
        ("right", (~task.wrong).astype(np.float32), "true or false"),
        ("says_unknown", unknown, "true or false"),
        ("popularity", np.array(known, np.float32), "as the questions give it"),
    ):
        part.add(name, ("example",), values, unit, examples)
    if np.isnan(np.array(known)).all():
        part.reasons.append("The questions say nothing of their subject's popularity.")
    _awareness(task)


def unknowing(task: Task) -> Mapping[str, bool]:
    """Which questions the model says not to know when it may say so."""
    settings = task.settings
    chat, template = how_asked(task.model.tokenizer, settings.chat, settings.template)
    distinct = {one.question.question: one.question for one in task.answers}
    asked = QA(tuple(distinct.values()), task.answers.name)
    said = answer(
        task.model, asked, chat=chat, template=template.replace("{question}", INVITED),
        stop=settings.stop, max_new_tokens=settings.max_new_tokens,
        progress=task.told(f"{task.answers.name}: may it not know?"),
    )  # fmt: skip
    return {one.question.question: one.verdict == "unknown" for one in said}


def _awareness(task: Task) -> None:
    """Add ``awareness_auc`` and its control, NaN where a group has too few questions."""
    q_anchored = task.groups_found()
    if q_anchored is None:
        return
    settings, told = task.settings, task.told(f"{task.answers.name}: self-awareness")
    shape = (task.parts.n_layers, len(settings.seeds))
    found, chance = np.full((2, *shape), np.nan, np.float32)
    few = 0
    for layer, labels in enumerate(q_anchored):
        names = np.array(task.groups)
        least = min(len(set(names[labels])), len(set(names[~labels])))
        if least < max(settings.folds, settings.min_examples):
            few += 1
        else:
            one = cross_fitted(
                {"base": task.base[layer : layer + 1]}, labels, task.groups, folds=settings.folds,
                seeds=settings.seeds, c=settings.c, balanced=settings.balanced, control=True,
            )  # fmt: skip
            found[layer], chance[layer] = one.auc[0], one.auc_control[0]
        told(layer + 1, len(q_anchored))
    if few:
        task.part.reasons.append(
            f"At {few} of {len(q_anchored)} layers a group is too small for a probe that tells "
            f"the groups apart."
        )
    for name, values in (("awareness_auc", found), ("awareness_auc_shuffled", chance)):
        task.part.add(name, ("layer", "seed"), values, "AUC")


def boundary(ds: Any, *, min_examples: int | None = None) -> Any:
    """What the groups know, at each layer.

    Args:
        ds: What `run` gave, its part ``"boundary"`` measured.
        min_examples: Groups with fewer examples are NaN; what the study was asked for if None.

    Returns:
        A Dataset over (model,) dataset, group and layer: ``accuracy`` and ``unknown_rate``
        (fraction, Wilson's 95 % interval in ``…_low`` and ``…_high``), ``popularity`` (median),
        ``group_size``.

    Raises:
        SpecError: The part was not measured.
    """
    from tlkit.studies.pathways.reading import leading, require

    require(ds, "right", "boundary")
    require(ds, "q_anchored", "group")
    least = int(ds.attrs["min_examples"]) if min_examples is None else min_examples
    lead = leading(ds)
    there = ds["right"].notnull().transpose(*lead, "example").values[..., None, None, :]
    turned = ds["q_anchored"].transpose(*lead, "layer", "example").values.astype(bool)
    members = np.stack([turned, ~turned], axis=len(lead)) & there
    members &= ds["p_wrong"].notnull().transpose(*lead, "layer", "example").values[
        ..., None, :, :
    ]  # fmt: skip
    sizes = members.sum(-1)
    values = {
        name: ds[name].transpose(*lead, "example").values[..., None, None, :]
        for name in ("right", "says_unknown", "popularity")
    }
    return _dataset(ds, members, sizes, values, least)


def _dataset(
    ds: Any, members: np.ndarray, sizes: np.ndarray, values: dict[str, np.ndarray], least: int
) -> Any:
    from tlkit.results.schema import build
    from tlkit.results.statistics import wilson_interval
    from tlkit.studies.pathways.part import GROUPS
    from tlkit.studies.pathways.reading import leading

    lead = leading(ds)
    dims, variables = (*lead, "group", "layer"), {}
    enough = sizes >= least
    for name, of in (("accuracy", "right"), ("unknown_rate", "says_unknown")):
        hits = (np.nan_to_num(values[of]) * members).sum(-1)
        bounds = [wilson_interval(int(h), int(n)) for h, n in zip(hits.flat, sizes.flat,
                                                                  strict=True)]  # fmt: skip
        low, high = np.array(bounds).T.reshape(2, *sizes.shape)
        share = hits / np.maximum(sizes, 1)
        for suffix, array in (("", share), ("_low", low), ("_high", high)):
            variables[name + suffix] = (dims, np.where(enough, array, np.nan), "fraction")
    known = np.where(members, values["popularity"], np.nan)
    variables["popularity"] = (dims, np.where(enough, _median(known), np.nan), "as given")
    variables["group_size"] = (dims, sizes, "examples")
    labels = {name: ds[name].values.tolist() for name in (*lead, "layer")}
    attrs = {**ds.attrs, "study": "pathways boundary"}
    return build(variables, {**labels, "group": list(GROUPS)}, attrs)


def _median(values: np.ndarray) -> np.ndarray:
    """Medians over the last axis, NaN where there is nothing (numpy warns of that)."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.nanmedian(values, axis=-1)
