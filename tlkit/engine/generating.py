"""`tk.generate`: greedy continuations of prompts while a condition holds."""

from collections.abc import Iterator
from typing import Any, Literal

from tlkit.engine.edits import Compiler, Edit
from tlkit.engine.reference import Reference, capture
from tlkit.engine.refusals import check_prompts
from tlkit.engine.sequences import Sequences
from tlkit.engine.sources import Sources
from tlkit.errors import SpecError
from tlkit.models.bridge import Parts
from tlkit.prompts.prompts import Prompts
from tlkit.spec.sweeps import Condition


def generate(
    model: Any,
    prompts: Any,
    condition: Any,
    *,
    max_new_tokens: int = 16,
    on: Literal["clean", "corrupted"] = "clean",
    steps: Literal["prompt", "every"] = "prompt",
) -> list[list[int]]:
    """Continue each prompt by its most likely tokens under a condition.

    Every new token comes from one hooked pass over the whole sequence, so positions are absolute
    and a patch of the prompt's position 3 changes that position and no other, however many tokens
    follow.

    Args:
        model: A loaded model.
        prompts: `tk.Prompts`.
        condition: What is changed: a `tk.Condition`.
        max_new_tokens: How many tokens are added; fewer where the model ends its answer.
        on: The run that is continued.
        steps: ``"prompt"``: only the prompt's positions are changed; ``"every"``: a site without
            positions means the new tokens too.

    Returns:
        The new token ids of each prompt, without the token that ends the text.

    Raises:
        SpecError: The condition cannot be carried out, or ``"every"`` meets a patch (there is
            nothing to put in at new tokens).
    """
    check_prompts(model, prompts)
    out: list[list[int]] = [[] for _ in prompts]
    for example, token in generated(
        model, prompts, condition, max_new_tokens=max_new_tokens, on=on, steps=steps
    ):
        out[example].append(token)
    return out


def generated(
    model: Any,
    prompts: Any,
    condition: Any,
    *,
    max_new_tokens: int = 16,
    on: Literal["clean", "corrupted"] = "clean",
    steps: Literal["prompt", "every"] = "prompt",
) -> Iterator[tuple[int, int]]:
    """What `generate` gives, token by token as (prompt, token), prompt after prompt."""
    check_prompts(model, prompts)
    if not isinstance(condition, Condition):
        raise SpecError(
            f"A tk.Condition says what is changed, such as tk.Condition('no MLP 3', "
            f"(tk.Ablate(tk.Site('mlp_out', layer=3)),)), and tk.Condition('base') that nothing "
            f"is; got {condition!r}."
        )
    parts = Parts(model)
    sequences = Sequences(prompts, on)
    sequences.require(on)
    if steps == "every" and any(getattr(one, "source", None) for one in condition.interventions):
        raise SpecError("A patch has no source at new tokens; use steps='prompt'.")
    end = getattr(model.tokenizer, "eos_token_id", None)
    edits = [_edits(parts, sequences, condition, example) for example in range(len(prompts))]
    # Means and other prompts' activations are those of the prompts, whatever is added to one.
    every = [edit for row in edits for edit in row]
    sources = Sources(lambda ids, places: capture(parts, ids, places), sequences, every)
    reference = Reference(parts, sources)
    for example, own in enumerate(edits):
        ids = list(sequences.runs[on][example])
        for _ in range(max_new_tokens):
            if steps == "every":
                own = _edits(parts, Sequences(Prompts.from_tokens([ids]), "clean"), condition, 0)
            token = int(reference.logits(ids, own, example)[-1].argmax())
            if token == end:
                break
            ids.append(token)
            yield example, token


def _edits(
    parts: Parts, sequences: Sequences, condition: Condition, example: int
) -> tuple[Edit, ...]:
    compiler = Compiler(sequences, parts.n_layers, parts.n_heads, parts.n_kv_heads)
    worked = compiler.work_out(condition, example)
    if worked.status == "missing":
        raise SpecError(f"Prompt {example} has no such position or span for {condition.name!r}.")
    return worked.edits
