"""The parts of the study, each as a function of its own: `run` with that part alone."""

from typing import Any

from tlkit.studies.pathways.study import run


def cuts(model: Any, qa: Any, **choices: Any) -> Any:
    """Cut the question off cumulatively, in single layers and in windows, both modes.

    Args:
        model: A loaded model, or several (see `run`).
        qa: Questions (see `run`).
        **choices: ``scopes``, ``modes``, ``window``, ``layers`` and whatever `run` takes.

    Returns:
        The dataset of `run`: ``p_wrong_cut`` and its ``…_control`` (dataset, condition, layer,
        example), probabilities, beside the group reading. `by_cut` makes ΔP of them.
    """
    return run(model, qa, parts=("cuts",), **choices)


def probes(model: Any, qa: Any, **choices: Any) -> Any:
    """Train probes at every layer, site and position, beside their controls.

    Args:
        model: A loaded model, or several (see `run`).
        qa: Questions (see `run`).
        **choices: ``sites``, ``seeds`` and whatever `run` takes.

    Returns:
        The dataset of `run`: ``place_auc``, ``place_f1``, ``place_balanced_accuracy``,
        ``place_brier``, ``place_ece``, ``place_auc_shuffled`` (dataset, site, pos, layer, seed),
        ``random_features_auc`` and ``answer_string_auc`` (dataset, seed). `places` tables them.
    """
    return run(model, qa, parts=("probes",), **choices)


def patch_tokens(model: Any, qa: Any, **choices: Any) -> Any:
    """Replace tokens, or take the question away, and ask the probe again.

    Args:
        model: A loaded model, or several (see `run`).
        qa: Questions (see `run`).
        **choices: Whatever `run` takes.

    Returns:
        The dataset of `run`: ``flip_rate`` and ``flip_rate_n`` (dataset, control, group, layer),
        ``flipped`` (dataset, control, layer, example), ``answer_only_delta_p`` (dataset, layer,
        example), beside the group reading. `flips` tables them.
    """
    return run(model, qa, parts=("tokens",), **choices)


def knowledge_boundary(model: Any, qa: Any, **choices: Any) -> Any:
    """Ask what the groups know, and whether a probe tells them apart (self-awareness).

    Args:
        model: A loaded model, or several (see `run`).
        qa: Questions (see `run`).
        **choices: Whatever `run` takes.

    Returns:
        The dataset of `run`: ``right``, ``says_unknown``, ``popularity`` (dataset, example),
        ``awareness_auc`` and ``awareness_auc_shuffled`` (dataset, layer, seed), beside the group
        reading. `boundary` and `awareness` read them.
    """
    return run(model, qa, parts=("boundary",), **choices)


def detect(model: Any, qa: Any, **choices: Any) -> Any:
    """Compare detectors of wrong answers on questions that they have not seen.

    Args:
        model: A loaded model, or several (see `run`).
        qa: Questions (see `run`).
        **choices: ``factors``, ``layers`` and whatever `run` takes.

    Returns:
        The dataset of `run`: ``detector_auc`` and its ``…_low``, ``…_high``,
        ``detector_difference``, ``detector_p_value`` (dataset, detector), ``detector_score``
        (dataset, detector, example). `detectors` tables them.
    """
    return run(model, qa, parts=("detect",), **choices)


def saliency(model: Any, qa: Any, **choices: Any) -> Any:
    """Measure on which attention edges from question to answer the probe's verdict hangs.

    Args:
        model: A loaded model, or several (see `run`).
        qa: Questions (see `run`).
        **choices: Whatever `run` takes.

    Returns:
        The dataset of `run`: ``saliency`` and ``saliency_full`` (dataset, layer, example), nats,
        beside the group reading. `saliency_density` makes a density of them.
    """
    return run(model, qa, parts=("saliency",), **choices)
