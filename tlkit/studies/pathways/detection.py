"""Detectors of wrong answers, each scored on questions that it has not seen.

Mixture-of-probes and pathway reweighting are after Luo et al. 2026 (arXiv:2601.07422, section 5;
their code was not to be had). Everything that is learned or chosen - the layer, who is Q-anchored,
gate, experts, and the factor of reweighting - comes from the training questions of each fold alone.

- ``p_true``: 1 - P(True), see `said`. ``logit_mean``, ``logit_min``: minus the mean or the least
  logit of the exact answer's tokens.
- ``probe``: one linear probe, at the layer that is best in an inner cross-validation.
- ``mop``: p(wrong) = Σ_m π_m p_m(wrong). The experts p_m are probes trained on the Q-anchored and
  on the A-anchored training examples, the gate π a probe that tells these apart.
- ``mop_random_gate``: π drawn at random. ``mop_vanilla_experts``: experts trained on a random
  division of the same sizes.
- ``reweighting``: the gate says on which pathway an example is; its attention edges (Q: from the
  exact question, A: among the answer's tokens) are scaled in all blocks, and a probe reads the
  result. The factor is chosen in the inner cross-validation, 1 (no change) among them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tlkit.studies.pathways.activations import read_under
from tlkit.studies.pathways.comparing import auc_interval, paired_auc
from tlkit.studies.pathways.examples import cut
from tlkit.studies.pathways.group import CUT, Probing, turned
from tlkit.studies.pathways.reweighting import SIDES, scaled
from tlkit.studies.pathways.said import p_true, token_logits
from tlkit.studies.pathways.task import Task
from tlkit.studies.probes import CrossFit, Probe, cross_fitted, divided

LEARNED = ("probe", "mop", "mop_random_gate", "mop_vanilla_experts", "reweighting")
DETECTORS = ("p_true", "logit_mean", "logit_min", *LEARNED)
RIVAL = "probe"
"""The detector with which the others are compared."""


@dataclass(frozen=True, eq=False)
class Learning:
    """What detectors learn from.

    Attributes:
        base: States at the exact answers' last tokens, ``[layer, example, feature]``.
        knockout: The same, the question cut off.
        scaled: Factor to the same with edges scaled, ``[side, layer, example, feature]``.
        labels: 0 and 1 (wrong), ``[example]``.
        groups: What must not be in training and test at once.
        probing: How probes are trained; the first seed divides.
    """

    base: np.ndarray
    knockout: np.ndarray
    scaled: dict[float, np.ndarray]
    labels: np.ndarray
    groups: Sequence[str]
    probing: Probing


def measure(task: Task) -> None:
    """Add each detector's score of every example, its AUC with an interval, and paired tests."""
    if not task.probed("Detecting wrong answers"):
        return
    scores = {"p_true": 1 - p_true(task)}
    logits = token_logits(task)
    scores["logit_mean"] = -np.array([row.mean() for row in logits])
    scores["logit_min"] = -np.array([row.min() for row in logits])
    scores |= detectors(learning(task), task.told(f"{task.answers.name}: detectors"))
    part, seed = task.part, task.settings.seed
    rows = np.stack([scores[name] for name in DETECTORS])
    part.add("detector_score", ("detector", "example"), rows, "score", task.examples)
    found = [auc_interval(row, task.wrong, task.groups, seed=seed) for row in rows]
    tests = [paired_auc(row, scores[RIVAL], task.wrong, task.groups, seed=seed) for row in rows]
    for name, values, unit in (
        ("detector_auc", [one.mean for one in found], "AUC"),
        ("detector_auc_low", [one.low for one in found], "AUC"),
        ("detector_auc_high", [one.high for one in found], "AUC"),
        ("detector_difference", [one.difference for one in tests], "AUC"),
        ("detector_p_value", [one.p_value for one in tests], "probability"),
    ):
        part.add(name, ("detector",), np.array(values, np.float32), unit)


def learning(task: Task) -> Learning:
    """Read all states that detectors learn from, at the study's layers."""
    settings, layers = task.settings, task.layers
    blocks = range(task.parts.n_layers)
    conditions = {
        CUT: [cut(one.question, len(one.ids), blocks, settings.mode) for one in task.examples]
    }
    for factor in settings.factors:
        for side in SIDES:
            conditions[f"{side} {factor}"] = [
                scaled(one, side, float(factor), blocks) for one in task.examples
            ]
    found = read_under(
        task, [one.ids for one in task.examples], [(one.last,) for one in task.examples],
        conditions, layers=layers, progress=task.told(f"{task.answers.name}: reweighting"),
    )  # fmt: skip
    found = {name: values[:, :, 0] for name, values in found.items()}
    factors = {
        float(factor): np.stack([found[f"{side} {factor}"] for side in SIDES])
        for factor in settings.factors
    }
    return Learning(
        found["base"], found[CUT], factors, task.wrong.astype(int), task.groups, settings.probing
    )


def detectors(given: Learning, told: object = None) -> dict[str, np.ndarray]:
    """Scores of the detectors that learn, each example's by those that have not seen its question.

    Args:
        given: What they learn from.
        told: Called with (folds done, folds in all), if given.

    Returns:
        Name to ``[example]``: the probability of "wrong".
    """
    labels, probing = given.labels, given.probing
    scores = {name: np.full(len(labels), np.nan) for name in LEARNED}
    folds = list(divided(labels, given.groups, probing.folds, probing.seeds[0]))
    for number, (train, test) in enumerate(folds):
        for name, values in _Fold(given, train, probing.seed + number).scores(test).items():
            scores[name][test] = values
        if callable(told):
            told(number + 1, len(folds))
    return scores


class _Fold:
    """What is learned from one fold's training questions.

    Args:
        given: Everything.
        train: Indices of the training examples.
        seed: Draws the random gate and the random division.
    """

    def __init__(self, given: Learning, train: np.ndarray, seed: int) -> None:
        self.given, self.train = given, train
        self.generator = np.random.default_rng([seed, 3])
        self.labels, self.groups = given.labels[train], [str(given.groups[i]) for i in train]
        inner = self._inner({"base": given.base[:, train], CUT: given.knockout[:, train]})
        self.layer = int(np.nanargmax(inner.auc[:, 0]))
        said = {name: values[self.layer] for name, values in inner.probability.items()}
        self.q_anchored = turned(said["base"], said[CUT])
        self.features = given.base[self.layer]
        self.single = self._fit(self.features[train], self.labels)

    def scores(self, test: np.ndarray) -> dict[str, np.ndarray]:
        """Each detector's probability of "wrong"."""
        x, train = self.features, self.train
        gate = self._gate()
        share = gate.probability(x[test]) if gate else np.full(len(test), self.q_anchored.mean())
        experts = self._experts(self.q_anchored)
        vanilla = self._experts(self.generator.permutation(self.q_anchored))
        single = self.single.probability(x[test])
        own = share if gate is None else self._held_out(gate, x[train])
        return {
            "probe": single,
            "mop": _mixed(experts, share, x[test]),
            "mop_random_gate": _mixed(experts, self.generator.random(len(test)), x[test]),
            "mop_vanilla_experts": _mixed(vanilla, share, x[test]),
            "reweighting": single if gate is None else self._reweighted(own, share, test),
        }

    def _fit(self, features: np.ndarray, labels: np.ndarray) -> Probe:
        probing = self.given.probing
        return Probe.fit(features, labels, c=probing.c, balanced=probing.balanced)

    def _inner(self, features: dict[str, np.ndarray], labels: np.ndarray | None = None) -> CrossFit:
        """Held-out probes within the training examples."""
        probing = self.given.probing
        return cross_fitted(
            features, self.labels if labels is None else labels, self.groups,
            folds=probing.folds, seeds=probing.seeds[:1], c=probing.c, balanced=probing.balanced,
        )  # fmt: skip

    def _gate(self) -> Probe | None:
        """The probe of self-awareness; None where all training examples are of one group."""
        if len(np.unique(self.q_anchored)) < 2:
            return None
        return self._fit(self.features[self.train], self.q_anchored.astype(int))

    def _held_out(self, gate: Probe, x: np.ndarray) -> np.ndarray:
        """What gates say of training examples that they have not seen; the gate itself if few."""
        groups = np.array(self.groups)
        least = min(len(set(groups[self.q_anchored == side])) for side in (False, True))
        if least < self.given.probing.folds:
            return gate.probability(x)
        return self._inner({"base": x[None]}, self.q_anchored.astype(int)).probability["base"][0]

    def _experts(self, first: np.ndarray) -> tuple[Probe, Probe]:
        """Probes of either group; where a group knows one class only, the single probe."""
        found = []
        for members in (first, ~first):
            labels = self.labels[members]
            one_class = len(np.unique(labels)) < 2
            found.append(
                self.single if one_class else self._fit(self.features[self.train][members], labels)
            )
        return found[0], found[1]

    def _reweighted(self, own: np.ndarray, share: np.ndarray, test: np.ndarray) -> np.ndarray:
        """A probe on states whose edges were scaled by the factor that serves training best."""
        best, chosen = -np.inf, None
        every = {1.0: np.stack([self.given.base] * len(SIDES)), **self.given.scaled}
        for factor, values in every.items():
            learned = _of_side(values[:, self.layer], self.train, own)
            score = float(self._inner({"base": learned[None]}).auc[0, 0])
            if score > best:
                best, chosen = score, (factor, learned)
        assert chosen is not None
        probe = self._fit(chosen[1], self.labels)
        return probe.probability(_of_side(every[chosen[0]][:, self.layer], test, share))


def _mixed(experts: tuple[Probe, Probe], share: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Σ_m π_m p_m."""
    return share * experts[0].probability(x) + (1 - share) * experts[1].probability(x)


def _of_side(values: np.ndarray, which: np.ndarray, share: np.ndarray) -> np.ndarray:
    """States ``[example, feature]`` of the side on which a gate puts each example."""
    return np.where((share > 0.5)[:, None], values[0][which], values[1][which])
