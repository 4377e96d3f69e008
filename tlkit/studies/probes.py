"""Linear probes: standardised logistic regression, trained and tested on different questions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tlkit.errors import SpecError
from tlkit.results.statistics import auc

if TYPE_CHECKING:
    from tlkit.spec.directions import Direction
    from tlkit.spec.sites import Site

STRENGTH = 0.01
"""Default inverse strength C of the L2 penalty, on standardised features."""


@dataclass(frozen=True, eq=False)
class Probe:
    """A logistic regression on one activation vector: p(class 1) = sigmoid(x · weight + bias).

    Attributes:
        weight: ``[feature]``, on the features as they come; standardising is folded in.
        bias: The logit at 0.
    """

    weight: np.ndarray
    bias: float

    @classmethod
    def fit(
        cls, features: np.ndarray, labels: np.ndarray, *, c: float = STRENGTH,
        balanced: bool = True,
    ) -> "Probe":  # fmt: skip
        """Fit scikit-learn's logistic regression to standardised features.

        Where there are fewer examples than features, the fit is made in the span of the examples,
        in which the solution lies: the same weights, sooner.

        Args:
            features: ``[example, feature]``, finite.
            labels: ``[example]``, 0 and 1.
            c: Inverse strength of the L2 penalty (scikit-learn's C).
            balanced: Weigh classes alike, so that 0.5 is where either is as likely.

        Raises:
            SpecError: Only one class is there, or a feature is not finite.
        """
        return Trainer(features).fit(labels, c=c, balanced=balanced)

    def logits(self, features: np.ndarray) -> np.ndarray:
        """Log-odds of class 1 of ``[…, feature]``."""
        return np.asarray(features, dtype=np.float64) @ self.weight + self.bias

    def probability(self, features: np.ndarray) -> np.ndarray:
        """Probability of class 1 of ``[…, feature]``."""
        from scipy.special import expit

        return expit(self.logits(features))

    def direction(self, site: "Site | None" = None) -> "Direction":
        """The direction in which the probability of class 1 rises fastest."""
        import torch

        from tlkit.spec.directions import Direction

        return Direction(torch.tensor(self.weight), site, "probe")


class Trainer:
    """Fits probes with any labels to the same activations, standardised once.

    Args:
        features: ``[example, feature]``, finite.

    Raises:
        SpecError: A feature is not finite.
    """

    def __init__(self, features: np.ndarray) -> None:
        x = np.asarray(features, dtype=np.float64)
        if not np.isfinite(x).all():
            raise SpecError("A probe needs finite activations; some of these are not.")
        self.mean, scale = x.mean(0), x.std(0)
        # Features that do not vary say nothing; rounding makes their deviation about 1e-16 of them.
        self.scale = np.where(scale > 1e-12 * np.abs(self.mean), scale, np.inf)
        z = (x - self.mean) / self.scale
        self.span = _span(z) if len(z) < z.shape[1] else np.eye(z.shape[1])
        self.inside = z @ self.span

    def fit(self, labels: np.ndarray, *, c: float = STRENGTH, balanced: bool = True) -> Probe:
        """Fit scikit-learn's logistic regression (see `Probe.fit`)."""
        from sklearn.linear_model import LogisticRegression

        y = np.asarray(labels).astype(int)
        if len(np.unique(y)) < 2:
            raise SpecError(f"A probe needs examples of two classes; all {len(y)} are of one.")
        model = LogisticRegression(
            C=c, class_weight="balanced" if balanced else None, tol=1e-6, max_iter=2000
        )
        model.fit(self.inside, y)
        slope, intercept = np.asarray(model.coef_)[0], np.asarray(model.intercept_)[0]
        weight = self.span @ slope / self.scale
        return Probe(weight, float(intercept - self.mean @ weight))


def _span(z: np.ndarray) -> np.ndarray:
    """An orthonormal basis ``[feature, rank]`` of the span of examples ``[example, feature]``."""
    values, vectors = np.linalg.eigh(z @ z.T)
    kept = values > 1e-10 * values[-1]
    if not kept.any():
        return np.zeros((z.shape[1], 1))
    return z.T @ (vectors[:, kept] / np.sqrt(values[kept]))


class CrossFit(NamedTuple):
    """What held-out probes say, one probe per layer, fold and seed.

    Attributes:
        probability: Name of a set of activations to ``[layer, example]``: the probability of
            class 1 by probes that were trained on other questions, averaged over seeds.
        auc: ``[layer, seed]`` on held-out questions of the set ``"base"``, averaged over folds.
        auc_control: The same of probes that were taught shuffled labels; NaN if not asked for.
    """

    probability: dict[str, np.ndarray]
    auc: np.ndarray
    auc_control: np.ndarray


def cross_fitted(
    features: Mapping[str, np.ndarray],
    labels: np.ndarray,
    groups: Sequence[str],
    *,
    folds: int = 5,
    seeds: Sequence[int] = (0,),
    c: float = STRENGTH,
    balanced: bool = True,
    among: np.ndarray | None = None,
    control: bool = False,
) -> CrossFit:
    """Train probes on the activations ``"base"``, and ask them of examples they have not seen.

    Args:
        features: Name to ``[layer, example, feature]``; ``"base"`` is what probes learn from.
        labels: ``[example]``, 0 and 1.
        groups: The question of each example; a question is never in training and test at once.
        folds: Number of folds.
        seeds: One division into folds for each.
        c: Inverse strength of the penalty (see `Probe.fit`).
        balanced: See `Probe.fit`.
        among: bool ``[example]``, which examples may be trained on; all if None.
        control: Whether probes are also taught labels that are shuffled within the training set,
            whose AUC is 0.5 but for chance.

    Raises:
        SpecError: There are too few examples or questions of a class for so many folds.
    """
    labels = np.asarray(labels).astype(int)
    layers, count = features["base"].shape[:2]
    total = {name: np.zeros((layers, count)) for name in features}
    score, chance = np.zeros((2, layers, len(seeds)))
    for at, seed in enumerate(seeds):
        generator = np.random.default_rng(seed)
        for train, test in divided(labels, groups, folds, seed):
            train = train if among is None else train[among[train]]
            shuffled = generator.permutation(labels[train])
            for layer in range(layers):
                held_out = features["base"][layer][test]
                trainer = Trainer(features["base"][layer][train])
                probe = trainer.fit(labels[train], c=c, balanced=balanced)
                for name, several in features.items():
                    total[name][layer, test] += probe.probability(several[layer][test])
                score[layer, at] += auc(probe.logits(held_out), labels[test]) / folds
                if control:
                    other = trainer.fit(shuffled, c=c, balanced=balanced)
                    chance[layer, at] += auc(other.logits(held_out), labels[test]) / folds
    mean = {name: one / len(seeds) for name, one in total.items()}
    return CrossFit(mean, score, chance if control else np.full_like(chance, np.nan))


def divided(
    labels: np.ndarray, groups: Sequence[str], folds: int, seed: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield (train, test) indices: questions apart, classes in proportion.

    Raises:
        SpecError: A class has fewer questions than there are folds.
    """
    from sklearn.model_selection import StratifiedGroupKFold

    names = np.asarray(groups)
    for label in (0, 1):
        there = len(np.unique(names[labels == label]))
        if there < folds:
            raise SpecError(
                f"Class {label} has {there} questions, too few for {folds} folds; take more "
                f"questions or fewer folds."
            )
    split = StratifiedGroupKFold(folds, shuffle=True, random_state=seed)
    yield from split.split(np.zeros((len(labels), 1)), labels, names)


def halves(labels: np.ndarray, groups: Sequence[str], seed: int) -> np.ndarray:
    """Divide questions into two halves, each class alike: True for the first half.

    Drawn apart from the folds of `divided`, so that each fold holds some of either half.
    """
    of_first: dict[str, bool] = {}
    turn = {0: True, 1: True}
    for i in np.random.default_rng([seed, 1]).permutation(len(groups)).tolist():
        name, label = str(groups[i]), int(labels[i])
        if name not in of_first:
            of_first[name] = turn[label]
            turn[label] = not turn[label]
    return np.array([of_first[str(group)] for group in groups])
