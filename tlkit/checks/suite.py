"""All checks of a model."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tlkit.checks.check import Check

if TYPE_CHECKING:
    from tlkit.models.bridge import Parts

Progress = Callable[[int, int], None]
STAGES = 9


def run(model: Any, *, seed: int = 0, progress: Progress | None = None) -> list[Check]:
    """Hold a model to everything that tlkit promises about it.

    Args:
        model: A model from `tk.HookedTransformer.from_pretrained`, or a TransformerLens bridge;
            it is left as it was.
        seed: Chooses the random prompts and the cells that are tried.
        progress: Called with (stages done, stages in all).

    Returns:
        The checks, in the order in which they were made. A check that raised counts as failed.
    """
    found: list[Check] = []
    for done, some in enumerate(_stages(model, seed)):
        found += some
        if progress:
            progress(done + 1, STAGES)
    return found


def _stages(model: Any, seed: int) -> Iterator[list[Check]]:
    from tlkit.checks import equality, generation, precision, sites, tokens, twins
    from tlkit.checks.forward import bridge_logits
    from tlkit.checks.samples import sample_layers, sample_pairs
    from tlkit.engine.route import route_of
    from tlkit.models.bridge import Parts

    before = state_of(model)
    parts = Parts(model)
    layers = sample_layers(parts.n_layers)
    pairs = sample_pairs(parts, seed)
    rows, one = pairs.clean, pairs[:1]
    scale = max(float(logits.abs().max()) for logits in bridge_logits(parts, rows[:1]))
    route = route_of(parts)
    made: list[Callable[[], list[Check]]] = [
        lambda: [equality.against_hugging_face(parts, rows), twins.route_taken(route)],
        lambda: [equality.padded_batch(parts, rows, route)],
        lambda: tokens.start_tokens(model),
        lambda: [
            *sites.site_contract(model, parts, one, layers, scale),
            sites.pattern_route(parts),
        ],
        lambda: sites.stream_adds_up(parts, one, layers),
        lambda: sites.whole_stream(model, parts, one, layers, scale),
        lambda: [twins.packed_equals_reference(model, parts, pairs[:2], route, scale, seed)],
        lambda: [generation.cached_generation(parts, rows)],
        lambda: [precision.drift(parts, rows)],
    ]
    for make in made[:-1]:
        yield _guarded(make)
    yield [*_guarded(made[-1]), left_as_found(before, state_of(model), parts)]


def _guarded(make: Callable[[], list[Check]]) -> list[Check]:
    try:
        return make()
    except Exception as error:
        return [Check("a check ran to its end", False, type(error).__name__, str(error))]


def state_of(model: Any) -> dict[str, Any]:
    """What a guest must not change: weights, modules, hooks and settings."""
    from tlkit.models.info import hash_weights

    hf = model.original_model
    return {
        "weights": hash_weights(model),
        "modules": [(name, id(module)) for name, module in hf.named_modules()],
        "hooks": [len(module._forward_hooks) for module in model.modules()],
        "attention": hf.config._attn_implementation,
        "training": model.training,
    }


def left_as_found(before: dict[str, Any], after: dict[str, Any], parts: "Parts") -> Check:
    """Compare the model before and after the checks."""
    changed = [name for name in before if before[name] != after[name]]
    return Check(
        "the model is as it was",
        not changed,
        "unchanged" if not changed else ", ".join(changed),
        f"Weights, modules, hooks and settings of {parts.name} before and after these checks.",
    )
