"""What each layer would predict: the stream read through the final norm and unembedding.

Method: nostalgebraist 2020 (https://www.lesswrong.com/posts/AcKRB8wDpdaN6v6ru); the readout is
TransformerLens's `logit_readout`.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from tlkit.engine.readout import Reading
from tlkit.engine.refusals import check_prompts
from tlkit.engine.route import route_of
from tlkit.engine.sequences import Sequences
from tlkit.engine.states import states
from tlkit.errors import SpecError
from tlkit.models.bridge import Parts
from tlkit.models.text import token_labels
from tlkit.results.provenance import provenance
from tlkit.results.schema import build, token_coords
from tlkit.spec.callables import as_metrics
from tlkit.spec.metrics import LogitDiff
from tlkit.spec.readout import Metric

SITES = ("resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out")
ROWS = 256
"""Vectors that are unembedded at a time."""


def logit_lens(
    model: Any,
    prompts: Any,
    metrics: Any = None,
    *,
    on: Literal["clean", "corrupted"] = "clean",
    site: str = "resid_post",
    layers: Sequence[int] | None = None,
    tokens: bool = True,
) -> Any:
    """Read every layer's stream through the model's final norm and unembedding.

    Args:
        model: A loaded model.
        prompts: `tk.Prompts`.
        metrics: What is measured on each layer's logits, as for `tk.run`; `tk.LogitDiff()` if
            None and the prompts have both answers. The base of `tk.KL` is the last layer.
        on: Which run is read.
        site: A site of the stream, or what attention or an MLP adds to it.
        layers: Which layers; all if None.
        tokens: Whether to read every position's most likely token too, which takes an unembedding
            of all tokens at all layers.

    Returns:
        An xarray Dataset: ``value`` (metric, layer, example); ``top_token``, ``top_prob``
        (probability), ``entropy`` (nats), each (layer, pos, example), empty or NaN behind an
        example's end. At the last layer's ``resid_post`` they are the model's own.

    Raises:
        SpecError: The site is none of the stream, a layer does not exist, or there is nothing to
            read.
    """
    started = time.perf_counter()
    if site not in SITES:
        raise SpecError(f"The logit lens reads {', '.join(SITES)}, not {site!r}.")
    check_prompts(model, prompts)
    several = _metrics(metrics, prompts, needed=not tokens)
    parts = Parts(model)
    chosen = checked_layers(layers, parts.n_layers)
    if reason := parts.unsupported(site):
        raise SpecError(f"{parts.name} has no site {site!r}: {reason}.")
    forced = any(getattr(metric, "teacher_forced", False) for metric in several)
    sequences = Sequences(prompts, on, forced)
    sequences.require(on)
    streams = _streams(parts, sequences, site, chosen)
    last = ("resid_post", parts.n_layers - 1)
    coords: dict[str, Any] = {"layer": chosen, "example": range(len(prompts))}
    variables: dict[str, tuple] = {}
    if several:
        values = [_values(model, parts, m, sequences, streams, last) for m in several]
        variables["value"] = (("metric", "layer", "example"), np.stack(values))
        coords["metric"] = [metric.name for metric in several]
        coords["metric_units"] = ("metric", [metric.unit for metric in several])
    if tokens:
        variables |= _most_likely(model, sequences, streams, len(chosen))
        labels = getattr(prompts, f"{on}_tokens")
        coords |= token_coords(labels, positions=range(_width(sequences))) if labels else {}
    seconds = round(time.perf_counter() - started, 3)
    attrs = provenance(model, prompts, study="logit_lens", on=on, site=site, seconds=seconds)
    return build(variables, coords, attrs)


def checked_layers(layers: Sequence[int] | None, count: int) -> list[int]:
    """The layers asked for.

    Raises:
        SpecError: One does not exist.
    """
    chosen = list(range(count)) if layers is None else [int(layer) for layer in layers]
    if not chosen or not all(0 <= layer < count for layer in chosen):
        raise SpecError(f"layers={chosen}: this model has layers 0 to {count - 1}.")
    return chosen


def _metrics(metrics: Any, prompts: Any, *, needed: bool) -> tuple[Metric, ...]:
    """Checked metrics; none where none were asked for and the prompts have no answers.

    Raises:
        SpecError: They are needed, and there are none.
    """
    if metrics is None:
        if prompts.answers is None or prompts.wrong_answers is None:
            if needed:
                raise SpecError("There is nothing to read: give metrics, or leave tokens=True.")
            return ()
        metrics = LogitDiff()
    several = as_metrics(metrics)
    for metric in several:
        metric.vocabulary(prompts)
    return several


def _width(sequences: Sequences) -> int:
    prompts = range(len(sequences.prompts))
    return max(sequences.prompt_length(sequences.base, i) for i in prompts)


def _streams(
    parts: Parts, sequences: Sequences, site: str, layers: Sequence[int]
) -> dict[Any, list[Tensor]]:
    """Per layer, and for the model's own last stream, ``[pos, d_model]`` of each example."""
    ids = sequences.runs[sequences.base]
    everywhere = [tuple(range(len(row))) for row in ids]
    places = {*((site, layer) for layer in layers), ("resid_post", parts.n_layers - 1)}
    packed = route_of(parts).packed
    found = states(parts, sequences, everywhere, sorted(places), {}, packed=packed)["base"]
    return {place: found[place] for place in places} | {
        at: found[site, layer] for at, layer in enumerate(layers)
    }


def readout(model: Any, rows: Tensor, **asked: Any) -> Any:
    """TransformerLens's reading of vectors ``[row, d_model]``."""
    from transformer_lens.tools.analysis import logit_readout

    return logit_readout(model, rows, chunk_size=ROWS, **asked)


def _values(
    model: Any, parts: Parts, metric: Metric, sequences: Sequences, streams: dict[Any, Any],
    last: Any,
) -> np.ndarray:  # fmt: skip
    """One metric's values ``[layer, example]``, an example at a time."""
    reading = Reading(metric, sequences, sequences.base, parts.device)
    layers = [key for key in streams if isinstance(key, int)]
    read: Callable[[Any, int], Tensor] = lambda key, example: readout(  # noqa: E731
        model, streams[key][example][list(reading.positions[example])], vocab=reading.vocabulary
    ).values.float()
    found = np.zeros((len(layers), len(sequences.prompts)), dtype=np.float32)
    for example in range(len(sequences.prompts)):
        count = len(reading.positions[example])
        logits = torch.stack([read(key, example) for key in (*layers, last)])
        padded = logits.new_zeros(len(logits), reading.width, logits.shape[-1])
        padded[:, :count] = logits
        rows, base = padded[:-1], padded[-1:].expand_as(padded[:-1])
        values = metric(reading.readout([example] * len(rows), rows, base))
        found[:, example] = values.float().cpu().numpy()
    return found


def _most_likely(
    model: Any, sequences: Sequences, streams: dict[Any, Any], layers: int
) -> dict[str, tuple]:
    """Most likely token, its probability and the entropy, ``[layer, pos, example]``."""
    shape = (layers, _width(sequences), len(sequences.prompts))
    ids = np.full(shape, -1, dtype=np.int64)
    probability, entropy = (np.full(shape, np.nan, dtype=np.float32) for _ in range(2))
    for example in range(shape[2]):
        length = sequences.prompt_length(sequences.base, example)
        rows = torch.stack([streams[at][example][:length] for at in range(layers)])
        found = readout(model, rows, top_k=1, return_type="probs")
        ids[:, :length, example] = found.top_ids[..., 0].cpu().numpy()
        probability[:, :length, example] = found.values[..., 0].float().cpu().numpy()
        entropy[:, :length, example] = found.entropy.float().cpu().numpy()
    known = np.unique(ids[ids >= 0])
    labels = dict(zip(known.tolist(), _labels(model, known.tolist()), strict=True)) | {-1: ""}
    names = np.array([labels[i] for i in ids.ravel().tolist()], dtype=str).reshape(shape)
    dims = ("layer", "pos", "example")
    return {
        "top_token": (dims, names, "token"),
        "top_prob": (dims, probability, "probability"),
        "entropy": (dims, entropy),
    }


def _labels(model: Any, ids: list[int]) -> list[str]:
    if model.tokenizer is None:
        return [str(i) for i in ids]
    return token_labels(model.tokenizer, ids)
