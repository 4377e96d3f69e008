"""What a condition does to the first MLP's activations."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from tlkit.errors import SpecError
from tlkit.models.bridge import Parts, unbridged
from tlkit.prompts.prompts import Prompts
from tlkit.results.provenance import provenance
from tlkit.results.schema import build
from tlkit.studies.conditions.arm import ARM, activation_module, redistributed
from tlkit.studies.conditions.transform import changed, named

CLASSES = ("digits", "operators", "words", "other")
OPERATORS = set("+-*/=<>^%×÷·±√()[]{}$\\|")  # noqa: RUF001
BINS = 201


def token_class(label: str) -> str:
    """What a token is: digits, an operator, a word, or other."""
    text = label.strip()
    if text and all(letter.isdigit() or letter in ".," for letter in text) and text.strip(".,"):
        return "digits"
    if text and all(letter in OPERATORS for letter in text):
        return "operators"
    return "words" if text.isalpha() else "other"


def activations(
    model: Any, prompts: Prompts, conditions: Any, *, layers: Iterable[int] = (0,),
    near_zero: float = 0.05,
) -> Any:  # fmt: skip
    """Describe the activation function's outputs on the original tokens, condition by condition.

    Shi et al. 2025 (arXiv:2510.01032, section 3.3): sparsity falls and norms rise when meaningless
    tokens are put in. Threshold and bins are ours: the paper names none.

    Args:
        model: A loaded model.
        prompts: `tk.Prompts`.
        conditions: As `run` takes them; `ARM` too.
        layers: Whose MLPs.
        near_zero: ``near_zero_share`` counts activations of at most this share of the plain
            prompts' root mean square.

    Returns:
        A Dataset: ``sparsity`` (share of activations below the plain prompts' median size:
        0.5 there by definition), ``l1`` (mean size), ``l2`` (root mean square), ``gini`` (of sizes:
        0 if all are alike, near 1 if few are large), each (condition, layer);
        ``near_zero_share`` (condition, layer, group), groups the token classes and ``all``;
        ``histogram`` (condition, layer, kind), shares of equal bins, the edges in
        ``attrs["edges"]``.

    Raises:
        SpecError: A condition or layer cannot be used.
    """
    parts, labelled = Parts(model), named(conditions)
    chosen = sorted(set(layers))
    modules = [activation_module(parts, layer) for layer in chosen]
    base = next(label for label, one in labelled.items() if one is None)
    order = [base, *(label for label in labelled if label != base)]
    classes = [[token_class(label) for label in row] for row in prompts.clean_tokens]
    if not classes:
        raise SpecError("Token classes need labels: make the prompts with a tokenizer.")
    flat = np.array([one for row in classes for one in row])
    values = {}
    for label in order:
        one = labelled[label]
        if isinstance(one, ARM):
            with redistributed(model, one):
                values[label] = _outputs(
                    parts, prompts, changed(model, prompts, label, None), modules
                )
        else:
            values[label] = _outputs(parts, prompts, changed(model, prompts, label, one), modules)
    return _described(model, prompts, labelled, order, base, chosen, values, flat, near_zero)


def _outputs(parts: Parts, prompts: Prompts, change: Any, modules: list[Any]) -> list[np.ndarray]:
    """Per layer ``[token, neuron]``: the original tokens of all prompts, one after another."""
    if change.condition is not None:
        raise SpecError("Activations are described for changed prompts and ARM, not interventions.")
    found: list[list[np.ndarray]] = [[] for _ in modules]
    last: dict[int, torch.Tensor] = {}

    def keep(at: int) -> Any:
        def hook(_module: Any, _args: Any, out: torch.Tensor) -> None:
            last[at] = out.detach()

        return hook

    handles = [module.register_forward_hook(keep(at)) for at, module in enumerate(modules)]
    try:
        with torch.no_grad(), unbridged(parts.bridge) as whole:
            hf: Any = whole
            for ids, maps in zip(change.ids, change.maps, strict=True):
                hf.base_model(torch.tensor([list(ids)], device=parts.device), use_cache=False)
                for at in range(len(modules)):
                    rows = last[at].reshape(-1, last[at].shape[-1]).float().cpu().numpy()
                    own = np.full((len(maps), rows.shape[1]), np.nan, np.float32)
                    there = [old for old, new in enumerate(maps) if new >= 0]
                    own[there] = rows[[maps[old] for old in there]]
                    found[at].append(own)
    finally:
        for handle in handles:
            handle.remove()
    return [np.concatenate(several) for several in found]


def gini(sizes: np.ndarray) -> float:
    """Gini's coefficient of sizes: 0 if all are alike, near 1 if few are large.

    Example:
        >>> round(gini(np.array([0.0, 0.0, 0.0, 1.0])), 2)
        0.75
    """
    ordered = np.sort(sizes.astype(np.float64).ravel())
    total = ordered.sum()
    if total == 0:
        return 0.0
    n = len(ordered)
    return float((2 * np.arange(1, n + 1) - n - 1) @ ordered / (n * total))


def _described(
    model: Any, prompts: Prompts, labelled: Mapping[str, Any], order: list[str], base: str,
    layers: list[int], values: Mapping[str, list[np.ndarray]], classes: np.ndarray, near: float,
) -> Any:  # fmt: skip
    shape = (len(order), len(layers))
    numbers = {name: np.zeros(shape) for name in ("sparsity", "l1", "l2", "gini")}
    shares = np.full((*shape, len(CLASSES) + 1), np.nan)
    histogram = np.zeros((*shape, BINS))
    edges = []
    for j in range(len(layers)):
        plain = values[base][j]
        there = plain[~np.isnan(plain)]
        middle, scale = np.median(np.abs(there)), np.sqrt((there**2).mean())
        span = np.quantile(np.abs(there), 0.999)
        bins = np.linspace(-span, span, BINS + 1)
        edges.append([float(bins[0]), float(bins[-1])])
        for i, label in enumerate(order):
            rows = values[label][j]
            size = np.abs(rows[~np.isnan(rows)])
            numbers["sparsity"][i, j] = (size < middle).mean()
            numbers["l1"][i, j], numbers["l2"][i, j] = size.mean(), np.sqrt((size**2).mean())
            numbers["gini"][i, j] = gini(size)
            small = np.abs(rows) <= near * scale
            known = ~np.isnan(rows)
            for k, name in enumerate((*CLASSES, "all")):
                of = np.ones(len(classes), bool) if name == "all" else classes == name
                if known[of].any():
                    shares[i, j, k] = small[of].sum() / known[of].sum()
            counted = np.clip(rows[known], bins[0], bins[-1])
            histogram[i, j] = np.histogram(counted, bins)[0] / counted.size
    dims = ("condition", "layer")
    variables: dict[str, tuple] = {
        name: (dims, array, "fraction" if name in ("sparsity", "gini") else "activation")
        for name, array in numbers.items()
    }
    variables["near_zero_share"] = ((*dims, "group"), shares, "fraction")
    variables["histogram"] = ((*dims, "kind"), histogram, "fraction")
    labels = {"condition": order, "layer": layers, "group": [*CLASSES, "all"]}
    attrs = provenance(
        model, prompts, study="activations", engine="streaming", near_zero=near,
        conditions="; ".join(f"{name}: {one}" for name, one in labelled.items()), edges=str(edges),
    )  # fmt: skip
    return build(variables, labels, attrs)
