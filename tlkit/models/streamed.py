"""Whether a model's blocks stay on disk, asked without loading anything for it."""

from typing import TYPE_CHECKING, Any

from tlkit.errors import SpecError

if TYPE_CHECKING:
    from tlkit.models.layers import Layers

KEY = "_tlkit_layers"


def layers_of(bridge: Any) -> "Layers | None":
    """What brings a model's blocks from disk; None where they are in memory."""
    return bridge.__dict__.get(KEY)


def release(bridge: Any) -> None:
    """Let blocks go that come from disk, at the end of a run."""
    layers = layers_of(bridge)
    if layers is not None:
        layers.release()


def need_memory(bridge: Any, what: str, instead: str) -> None:
    """Refuse what needs all weights in memory.

    Args:
        bridge: A loaded model.
        what: What was asked for, such as "engine='gradient'".
        instead: What to do, such as "use engine='packed'".

    Raises:
        SpecError: The model's weights are on disk.
    """
    if layers_of(bridge) is not None:
        raise SpecError(
            f"{what} needs all weights in memory, and this model was loaded with stream=True; "
            f"{instead}."
        )
