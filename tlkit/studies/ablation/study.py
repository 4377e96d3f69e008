"""`tk.ablation.run`: what each component of each layer, or each head, does to what a model says."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tlkit.engine.budget import bytes_of
from tlkit.engine.run import run as run_sweep
from tlkit.errors import SpecError
from tlkit.models.info import info
from tlkit.results.provenance import provenance
from tlkit.studies.ablation.behaviour import check_room, said
from tlkit.studies.ablation.cells import branch_cells, sweep_of
from tlkit.studies.ablation.dataset import Found, dataset
from tlkit.studies.ablation.inputs import Subject, subjects
from tlkit.studies.ablation.measures import metrics_of
from tlkit.studies.ablation.settings import BRANCHES, Settings

Progress = Callable[[int, int], None]
SHARE = 100
"""Steps of progress of one model's sweep, or of its continuations."""


def run(
    models: Any, prompts: Any, *, value: str = "zero", components: Any = BRANCHES,
    windows: int = 1, reference: Any = None, pooled: bool = True, metrics: Any = None,
    behaviour: Any = None, max_new_tokens: int = 32, chat: bool = False, seed: int = 0,
    engine: str = "packed", store: str | Path | None = None, budget: int | str | None = None,
    progress: Progress | None = None,
) -> Any:  # fmt: skip
    """Ablate attention, MLPs, blocks or heads one by one, and measure what changes.

    Args:
        models: A loaded model; or a mapping of names to models, which read the same texts.
        prompts: Texts, or rows with ``prompt`` and perhaps ``answer``; or `tk.Prompts`.
        value: What stands in a component's place: ``"zero"``; ``"mean"`` over ``reference``;
            ``"resample"``: another prompt's of ``reference``, at the same position; ``"skip"``:
            the stream passes it by. Of a block, both branches are replaced.
        components: Out of ``"attn_out"``, ``"mlp_out"``, ``"block"`` and ``"heads"`` (their z).
        windows: How many consecutive layers are ablated together; more than 1 are called "0-3".
        reference: Texts, rows or `tk.Prompts`; the prompts themselves if None.
        pooled: Whether means are over all positions, or each position has its own.
        metrics: Out of ``"kl"``, ``"loss"``, ``"answer_prob"``; all that prompts allow, if None.
        behaviour: A function of text that says whether a behaviour is there, or a mapping of names
            to such; they judge greedy continuations under every ablation but those of heads.
        max_new_tokens: Most tokens of a continuation.
        chat: Put each text into the model's chat template.
        seed: Draws other prompts.
        engine: ``"packed"``; or ``"reference"``, the slow twin.
        store: A folder for each model's sweep; the same call goes on with what is there.
        budget: Memory that the engine may take besides the weights: bytes, or ``"4GiB"``.
        progress: Called with (done, total).

    Returns:
        An xarray Dataset: ``kl`` (of the next token, plain || ablated; nats), ``loss`` (of the
        prompt's own tokens; nats per token), ``answer_prob`` (model, site, layer, example); of
        heads ``head_kl`` … (model, layer, head, example); ``loss_base``, ``answer_prob_base``
        (model, example); ``behaviour`` (1, 0, or NaN where nothing was said) and
        ``behaviour_base`` (… detector, example), with the texts as coordinates. ``depth`` counts
        each model's layers; what a model does not have is NaN.

    Raises:
        SpecError: The request cannot be carried out; told before any model runs.
    """
    settings = Settings.of(
        components, behaviour, metrics, value=value, windows=windows, pooled=pooled,
        max_new_tokens=max_new_tokens, seed=seed, engine=engine,
    )  # fmt: skip
    bytes_of(budget)
    every = subjects(models, prompts, reference, settings, chat=chat)
    for subject in every:
        check_room(subject, settings)
        metrics_of(settings, subject.prompts)
    return _measured(every, settings, reference is not None, store, budget, progress)


def _measured(
    every: Sequence[Subject], settings: Settings, given: bool, store: str | Path | None,
    budget: int | str | None, progress: Progress | None,
) -> Any:  # fmt: skip
    """A checked study, run model by model."""
    started, found = time.perf_counter(), []
    stages = _stages(len(every) * (1 + bool(settings.behaviour)), progress)
    for number, subject in enumerate(every):
        kept = None if store is None else _kept(Path(store), number)
        swept = run_sweep(
            subject.model, subject.prompts, sweep_of(settings, subject.parts, subject.reference),
            metrics_of(settings, subject.prompts), engine=settings.engine, store=kept,
            budget=budget, seed=settings.seed, progress=next(stages), study="ablation of one model",
        )  # fmt: skip
        heard = None
        if settings.behaviour:
            cells = branch_cells(settings, subject.parts.n_layers, subject.reference)
            heard = said(subject, cells, settings, next(stages))
        found.append(Found(subject, swept, heard))
    seconds = round(time.perf_counter() - started, 3)
    return dataset(found, settings, {**_attrs(found, settings, given), "seconds": seconds})


def _stages(count: int, progress: Progress | None) -> Any:
    """One function of (done, total) for each stage, all counting towards one end."""

    def stage(number: int) -> Progress:
        def told(done: int, total: int) -> None:
            if progress:
                share = SHARE * done // max(1, total)
                progress(number * SHARE + share, count * SHARE)

        return told

    return (stage(number) for number in range(count))


def _kept(folder: Path, number: int) -> Path:
    """Where a model's sweep is kept."""
    if folder.exists() and not folder.is_dir():
        raise SpecError(f"store={str(folder)!r} is a file; name a folder.")
    if not folder.parent.is_dir():
        raise SpecError(f"store={str(folder)!r}: the folder {folder.parent} does not exist.")
    folder.mkdir(exist_ok=True)
    return folder / f"model-{number}.zarr"


def _attrs(found: Sequence[Found], settings: Settings, given: bool) -> dict[str, Any]:
    """How it was done, of all models."""
    first: Subject = found[0].subject
    engines = dict.fromkeys(str(one.swept.attrs["engine"]) for one in found)
    reasons = dict.fromkeys(str(one.swept.attrs.get("engine_reason", "")) for one in found)
    attrs = provenance(
        first.model, first.prompts, seed=settings.seed, engine=", ".join(engines),
        study="ablation", models=", ".join(one.subject.name for one in found),
        weight_hashes=", ".join(info(one.subject.model).weight_hash for one in found),
        prompt_hashes=", ".join(one.subject.prompts.hash() for one in found),
        value=settings.value, components=", ".join(settings.components),
        windows=settings.windows, pooled=settings.pooled,
    )  # fmt: skip
    if settings.value in ("mean", "resample"):
        attrs["reference"] = "given" if given else "the prompts themselves"
        attrs["reference_hashes"] = json.dumps(
            [(one.subject.reference or one.subject.prompts).hash() for one in found]
        )
    if settings.behaviour:
        attrs["max_new_tokens"] = settings.max_new_tokens
    reason = "; ".join(filter(None, reasons))
    return {**attrs, **({"engine_reason": reason} if reason else {})}
