"""`tk.variance.run`: attention variance per layer and head on long documents."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from tlkit.engine.streaming import stream_each
from tlkit.errors import SpecError
from tlkit.models.bridge import Parts
from tlkit.models.info import info
from tlkit.results.provenance import provenance
from tlkit.results.schema import build
from tlkit.studies.variance.documents import Document, left_out, notes, read
from tlkit.studies.variance.scores import KINDS, ROWS, Scores

Progress = Callable[[int, int], None]
WINDOW = 32
PER_KIND = "unit of the kind"


def run(
    models: Any,
    documents: Iterable[Any],
    *,
    max_tokens: int | None = None,
    longer: str = "middle",
    window: int = WINDOW,
    pool: int = 5,
    top: int = 64,
    progress: Progress | None = None,
) -> Any:
    """Measure how attention varies over documents, in every layer and head.

    The weights stream by in blocks of queries: memory grows with a document's length alone.

    Args:
        models: A loaded model; or a mapping of names to models, such as ``{"original": a,
            "fine-tuned": b}``, which read the same documents.
        documents: Texts, or rows with ``id`` and ``text``.
        max_tokens: Most tokens of a document; what the model was made for, if None.
        longer: Of longer ones the ``"middle"`` is left out (as LongBench does) or the ``"end"``,
            or they become ``"windows"`` (a last one that is too short is left out).
            ``attrs["documents"]`` tells all counts, ``attrs["tokens_left_out"]`` their sum.
        window: How many of the last queries ``temporal`` and ``rank`` look at.
        pool: Neighbouring keys that ``rank`` averages.
        top: Tokens of each layer whose ranks are followed.
        progress: Called with (documents done, documents in all).

    Returns:
        An xarray Dataset: ``variance`` (kind, model, layer, head, document) and
        ``layer_variance`` (kind, model, layer, document), kinds ``temporal`` (variance of the last
        queries' weights, summed over the keys before them), ``column`` (variance over keys of all
        they are given) and ``rank`` (of tokens' ranks over neighbouring layers, in shares of the
        keys; NaN in layer 0), with sources in `tlkit.studies.variance.scores`; ``entropy``,
        ``entropy_rest``, ``distance``, ``sink_share`` (model, layer, head, document). Models
        with fewer layers or heads than others have NaN there.

    Raises:
        SpecError: A document is empty or too short, or a number cannot be used.
    """
    started = time.perf_counter()
    named = _named(models)
    _check(window=window, pool=pool, top=top)
    if isinstance(documents, str):
        raise SpecError("documents is one text; give a list, such as [text].")
    rows = _documents(named, list(documents), max_tokens, longer, window + 2)
    found, total = dict[str, list[Scores]](), sum(map(len, rows.values()))
    for name, several in rows.items():
        parts, before = Parts(named[name]), sum(map(len, found.values()))
        found[name] = [Scores(parts, one.ids, window, pool, top) for one in several]
        _fill(parts, several, found[name], progress, (before, total))
    first = next(iter(rows.values()))
    attrs = provenance(
        next(iter(named.values())), engine="streaming", study="variance",
        models=", ".join(named), weight_hashes=_hashes(named),
        documents=notes(first), tokens_left_out=left_out(first), window=window, pool=pool, top=top,
        longer=longer, seconds=round(time.perf_counter() - started, 3),
    )  # fmt: skip
    return _dataset(found, [one.name for one in first], attrs)


def _fill(
    parts: Parts, documents: list[Document], scores: list[Scores], progress: Progress | None,
    counts: tuple[int, int],
) -> None:  # fmt: skip
    """Show one model's attention on documents to their scores; counts are of all models'."""

    def done(number: int) -> None:
        scores[number].finish()
        if progress:
            progress(counts[0] + number + 1, counts[1])

    pairs = zip(documents, scores, strict=True)
    stream_each(parts, [(one.ids, own.reader) for one, own in pairs], done)


def _documents(
    named: Mapping[str, Any], documents: list[Any], max_tokens: int | None, longer: str, least: int
) -> dict[str, list[Document]]:
    """Each model's tokens of the documents, cut alike."""
    if not named:
        raise SpecError("variance needs a model.")
    longest = min(Parts(model).context for model in named.values())
    if max_tokens is not None and not least <= max_tokens <= longest:
        raise SpecError(
            f"max_tokens is {max_tokens}; it can be from {least} to {longest}, for which the "
            f"model was made."
        )
    rows = {
        name: read(model, documents, max_tokens or longest, longer, least)
        for name, model in named.items()
    }
    first = [one.name for one in next(iter(rows.values()))]
    for name, several in rows.items():
        if [one.name for one in several] != first:
            raise SpecError(f"{name} cuts the documents into other windows; use longer='middle'.")
    return rows


def _hashes(named: Mapping[str, Any]) -> str:
    return ", ".join(info(model).weight_hash for model in named.values())


def _named(models: Any) -> dict[str, Any]:
    if isinstance(models, (list, tuple, set)):
        raise SpecError("Several models need names: give {'original': a, 'fine-tuned': b}.")
    return dict(models) if isinstance(models, Mapping) else {_name(models): models}


def _name(model: Any) -> str:
    return str(getattr(getattr(model, "cfg", None), "model_name", None) or "model")


def _check(**numbers: int) -> None:
    least = {"window": 2, "pool": 1, "top": 1}
    for name, value in numbers.items():
        if not isinstance(value, int):
            raise SpecError(f"{name} is {value!r}; it is a whole number.")
        if value < least[name] or (name == "pool" and value % 2 == 0):
            odd = " and odd" if name == "pool" else ""
            raise SpecError(f"{name} is {value}; it must be at least {least[name]}{odd}.")


def _dataset(found: Mapping[str, list[Scores]], documents: list[str], attrs: dict[str, Any]) -> Any:
    several = [one for scores in found.values() for one in scores]
    layers, heads = (max(one.heads["temporal"].shape[axis] for one in several) for axis in (0, 1))
    shape = (len(found), layers, heads, len(documents))
    variance = np.full((len(KINDS), *shape), np.nan, np.float32)
    whole = np.full((len(KINDS), len(found), layers, len(documents)), np.nan, np.float32)
    rows = {name: np.full(shape, np.nan, np.float32) for name in ROWS}
    for i, scores in enumerate(found.values()):
        for j, one in enumerate(scores):
            n, m = one.heads["temporal"].shape
            for k, kind in enumerate(KINDS):
                variance[k, i, :n, :m, j] = one.heads[kind]
                whole[k, i, :n, j] = one.layers[kind]
            for name in ROWS:
                rows[name][i, :n, :m, j] = one.rows[name]
    dims = ("model", "layer", "head", "document")
    variables: dict[str, tuple] = {
        "variance": (("kind", *dims), variance, PER_KIND),
        "layer_variance": (("kind", "model", "layer", "document"), whole, PER_KIND),
    }
    for name, values in rows.items():
        variables["sink_share" if name == "sink" else name] = (dims, values, "fraction")
    labels = {"kind": list(KINDS), "model": list(found), "document": documents}
    return build(variables, labels, attrs)
