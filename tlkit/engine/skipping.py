"""Whole blocks left out of every pass, those of a cached generation included."""

import contextlib
from collections.abc import Collection, Iterator
from typing import Any

from tlkit.errors import SpecError
from tlkit.models.bridge import Parts


@contextlib.contextmanager
def skipping(parts: Parts, layers: Collection[int]) -> Iterator[None]:
    """Inside, the stream passes these blocks unchanged, at every position and in every pass.

    A skipped block still computes, so that its keys and values are cached and the cache keeps its
    length; what it puts out is replaced by what went in. That is `tlkit.Skip` of whole blocks for
    the prompt and all new tokens. It acts where the Hugging Face modules run (as in `greedy`).

    Args:
        parts: The model.
        layers: Which blocks.

    Raises:
        SpecError: There is no such block.
    """
    wrong = [layer for layer in layers if not 0 <= layer < parts.n_layers]
    if wrong:
        raise SpecError(
            f"There is no block {wrong[0]} to skip; this model has blocks 0 to "
            f"{parts.n_layers - 1}."
        )
    with contextlib.ExitStack() as stack:
        for layer in set(layers):
            handle = parts.blocks[layer].register_forward_hook(_pass_on, with_kwargs=True)
            stack.callback(handle.remove)
        yield


def _pass_on(_module: Any, args: tuple, kwargs: dict[str, Any], out: Any) -> Any:
    """A block's input in the place of its output."""
    stream = args[0] if args else kwargs["hidden_states"]
    return (stream, *out[1:]) if isinstance(out, tuple) else stream
