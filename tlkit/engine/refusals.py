"""Requests that cannot be carried out, told before the model runs."""

from collections.abc import Iterable, Sequence
from typing import Any

from tlkit.engine.edits import Worked
from tlkit.engine.sequences import Sequences
from tlkit.errors import SpecError
from tlkit.models.bridge import Parts
from tlkit.spec.directions import Direction
from tlkit.spec.interventions import Intervention, Patch
from tlkit.spec.sites import STREAM
from tlkit.spec.sweeps import AnyIntervention, Condition


def check_interventions(
    parts: Parts, sequences: Sequences, interventions: Sequence[AnyIntervention]
) -> None:
    """Refuse what cells that run nothing would hide: sites that are not there, lone patches.

    Raises:
        SpecError: The model has no such site, or a patch has no other run to take from.
    """
    _check_widths(parts, interventions)
    sites = {one.site.component for one in interventions if isinstance(one, Intervention)}
    for component in sorted(sites):
        _check_site(parts, component)
    if len(sequences.runs) < 2 and any(isinstance(one, Patch) for one in interventions):
        raise SpecError(
            "A patch needs another run to take from, and these prompts are no pairs: make them "
            "with Prompts.from_pairs."
        )


def check_seed(seed: Any) -> None:
    """Refuse what is no seed.

    Raises:
        SpecError: It is negative, or no whole number.
    """
    if not hasattr(seed, "__index__") or isinstance(seed, bool) or seed.__index__() < 0:
        raise SpecError(f"seed={seed!r} is no seed: give a whole number from 0 on.")


def check_somewhere(
    sequences: Sequences, conditions: Sequence[Condition], worked: Sequence[Sequence[Worked]]
) -> None:
    """Refuse a request that asks, in every cell, for places that no prompt has.

    Raises:
        SpecError: There would be nothing but NaN.
    """
    if not worked or any(one.status != "missing" for row in worked for one in row):
        return
    lengths = [len(ids) for ids in sequences.runs[sequences.base]]
    tokens = f"{min(lengths)} to {max(lengths)}" if len({*lengths}) > 1 else f"{lengths[0]}"
    asked = ", ".join(str(one) for one in conditions[0].interventions)
    raise SpecError(
        f"No prompt has the positions, span or aligned tokens that {asked:.200} asks for; the "
        f"prompts have {tokens} tokens, counted from 0."
    )


def _check_widths(parts: Parts, interventions: Sequence[AnyIntervention]) -> None:
    """Refuse directions of another width than what they are to change."""
    for one in interventions:
        direction = getattr(one, "direction", None)
        if not isinstance(one, Intervention) or not isinstance(direction, Direction):
            continue
        given = direction.vector.shape[-1]
        if one.site.component in STREAM and given != parts.d_model:
            raise SpecError(
                f"{type(one).__name__} at {one.site} has a direction of {given} numbers; the "
                f"stream of {parts.name} has {parts.d_model}."
            )


def _check_site(parts: Parts, component: str) -> None:
    reason = parts.unsupported(component)
    if reason:
        raise SpecError(f"{parts.name} has no site {component!r}: {reason}.")


def check_sites(parts: Parts, several: Iterable[Worked]) -> None:
    """Refuse sites that a model does not have.

    Raises:
        SpecError: There is no such site.
    """
    for component in sorted({edit.component for worked in several for edit in worked.edits}):
        _check_site(parts, component)


def check_prompts(model: Any, prompts: Any) -> None:
    """Refuse prompts that another tokenizer made.

    Raises:
        SpecError: The tokenizers differ, or there are no prompts.
    """
    from tlkit.models.info import info
    from tlkit.models.sources import is_bridge
    from tlkit.prompts.prompts import Prompts

    if not is_bridge(model):
        raise SpecError(
            f"{model!r:.80} is no loaded model; load one with tk.HookedTransformer.from_pretrained."
        )
    if not isinstance(prompts, Prompts):
        raise SpecError(
            f"Prompts are made with tk.Prompts.from_pairs or from_texts; got a "
            f"{type(prompts).__name__}."
        )
    if len(prompts) == 0:
        raise SpecError("There are no prompts to run.")
    own = info(model).tokenizer_hash
    if prompts.tokenizer_hash and own and prompts.tokenizer_hash != own:
        raise SpecError(
            "These prompts were tokenised by another model's tokenizer; make them with this model."
        )
    _check_ids(model, prompts)


def _check_ids(model: Any, prompts: Any) -> None:
    """Refuse token ids that the model does not have, and prompts longer than it was made for."""
    parts = Parts(model)
    weight: Any = parts.embed.weight
    words, longest = weight.shape[0], parts.context
    for side in ("clean", "corrupted"):
        for example, ids in enumerate(getattr(prompts, side) or ()):
            if max(ids, default=0) >= words or min(ids, default=0) < 0:
                raise SpecError(
                    f"Prompt {example} ({side}) has the token id {max(ids)}; this model has 0 to "
                    f"{words - 1}."
                )
            if len(ids) > longest:
                raise SpecError(
                    f"Prompt {example} ({side}) has {len(ids)} tokens; the model was made for "
                    f"{longest}."
                )
