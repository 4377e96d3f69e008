"""Classifiers on prompt features, each in a pipeline that standardises on training prompts."""

from typing import Any, NamedTuple

import numpy as np

from tlkit.errors import SpecError

CLASSIFIERS = ("logistic", "linear_svm", "rbf_svm", "forest")
ITERATIONS = 5000
"""Most steps of the logistic regression: standardised features need far fewer."""


class Scores(NamedTuple):
    """How well predictions agree with the truth.

    Attributes:
        f1: Of the positive class, 0 where it was never predicted.
        macro_f1: Mean of both classes' F1.
        balanced_accuracy: Mean of both classes' recall.
        auc: Area under the ROC curve.
    """

    f1: float
    macro_f1: float
    balanced_accuracy: float
    auc: float


def pipeline(classifier: str, seed: int = 0) -> Any:
    """Standardising followed by a classifier with scikit-learn's defaults.

    Args:
        classifier: One of `CLASSIFIERS`.
        seed: Draws the forest's trees; the others draw nothing.

    Raises:
        SpecError: There is no such classifier.
    """
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    made = {
        "logistic": lambda: LogisticRegression(max_iter=ITERATIONS),
        "linear_svm": lambda: SVC(kernel="linear"),
        "rbf_svm": lambda: SVC(),
        "forest": lambda: RandomForestClassifier(random_state=seed),
    }
    check_classifier(classifier)
    return make_pipeline(StandardScaler(), made[classifier]())


def check_classifier(classifier: str) -> None:
    """Refuse a classifier that does not exist.

    Raises:
        SpecError: With those that do.
    """
    if classifier not in CLASSIFIERS:
        raise SpecError(
            f"There is no classifier {classifier!r}; there are {', '.join(CLASSIFIERS)}."
        )


def fit_and_score(
    classifier: Any, train: np.ndarray, taught: np.ndarray, test: np.ndarray, truth: np.ndarray
) -> Scores:
    """Fit a classifier on training prompts and score it on others.

    Args:
        classifier: Anything with scikit-learn's ``fit`` and ``predict``.
        train: ``[prompt, feature]``.
        taught: bool ``[prompt]``, the labels that are learned.
        test: ``[prompt, feature]`` of other prompts.
        truth: bool ``[prompt]``, their true labels.
    """
    classifier.fit(train, taught)
    return scored(classifier.predict(test), decision(classifier, test), truth)


def scored(predicted: np.ndarray, score: np.ndarray, truth: np.ndarray) -> Scores:
    """Scores of predictions, by scikit-learn's definitions."""
    from sklearn.metrics import balanced_accuracy_score, f1_score, roc_auc_score

    never: dict[str, Any] = {"zero_division": 0}  # a class that was never predicted has F1 0
    return Scores(
        float(f1_score(truth, predicted, **never)),
        float(f1_score(truth, predicted, average="macro", **never)),
        float(balanced_accuracy_score(truth, predicted)),
        float(roc_auc_score(truth, score)),
    )


def decision(classifier: Any, features: np.ndarray) -> np.ndarray:
    """How strongly a classifier speaks for the positive class: what its AUC ranks."""
    if hasattr(classifier, "decision_function"):
        return classifier.decision_function(features)
    return classifier.predict_proba(features)[:, 1]
