"""Several runs of a model in step: each block is called for all of them before the next one is.

Where a block's weights come from disk, it is they that cost time. The base run, the runs that
patches read from and the lanes that rise on both then share one pass over the weights: no run looks
at what another does in a later block.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from tlkit.engine.packed import Packed
from tlkit.engine.record import (
    UNWATCHED,
    Recorder,
    Run,
    padded,
    record,
    told,
    watch_embed,
    watch_slot,
)
from tlkit.engine.seam import seam
from tlkit.engine.sources import Place
from tlkit.errors import EngineError
from tlkit.models.bridge import Parts
from tlkit.models.streamed import layers_of


class _Turns:
    """Gives attention to the run whose turn it is."""

    to: Any

    def attend(self, *args: Any, **more: Any) -> Tensor:
        """Attention as that run computes it."""
        return self.to.attend(*args, **more)


def together(
    parts: Parts, passes: Sequence["Pass"], packed: Packed | None = None, *, masks: bool = True,
    last: int | None = None,
) -> None:  # fmt: skip
    """Run passes in step, and behind each layer of theirs that of a packed run on them.

    Args:
        parts: The model.
        passes: Plain runs.
        packed: Lanes that rise on what the passes record.
        masks: See `seam`.
        last: The last layer that is needed.
    """
    turns = _Turns()
    end = parts.n_layers if last is None else last + 1
    with torch.no_grad(), seam(parts, turns, masks=masks) as hf:
        for one in passes:
            turns.to = one.handler
            one.begin(hf)
        for layer in range(end):
            for one in passes:
                turns.to = one.handler
                one.step(layer)
            if packed is not None:
                turns.to = packed
                packed.step(layer)
        if packed is not None:
            packed.step(parts.n_layers)


class Pass:
    """A plain run of some sequences, block by block.

    What a model hands to its blocks beside the stream (positions, masks) does not depend on the
    stream: it is got by a run whose blocks are left out. Whether that holds is tried out before a
    model's first run (see `tlkit.engine.route`).

    Args:
        parts: The model.
        ids: Token ids per example.
        handler: Computes attention.
        outputs: How the model's blocks give back the stream: 0 alone, n first in a tuple of n.
        more: Arguments of the model beside the tokens.
    """

    def __init__(
        self, parts: Parts, ids: Sequence[Sequence[int]], handler: Any, outputs: int,
        more: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.parts, self.handler, self.outputs, self.more = parts, handler, outputs, more
        self.tokens, self.mask = padded([list(row) for row in ids], parts.device)
        self.hidden: Tensor
        self.arguments: list[dict[str, Any]] = []

    def begin(self, hf: Any) -> None:
        """Embed the tokens, and learn what each block is called with."""
        more = {"attention_mask": self.mask} if self.more is None else self.more
        with _left_out(self.parts, self._called, self.outputs):
            hf.base_model(self.tokens, use_cache=False, **more)
        if len(self.arguments) != self.parts.n_layers:
            raise EngineError(
                f"{self.parts.name}: {len(self.arguments)} blocks came by, not "
                f"{self.parts.n_layers}."
            )

    def _called(self, layer: int, hidden: Tensor, arguments: dict[str, Any]) -> None:
        if layer == 0:
            self.hidden = hidden
        self.arguments.append(arguments)

    def step(self, layer: int) -> None:
        """One block."""
        block = self.parts.blocks[layer]
        out = block(hidden_states=self.hidden, **self.arguments[layer])
        self.hidden = out if torch.is_tensor(out) else out[0]


class Recording(Pass):
    """The same as `record`, block by block; ``run`` is filled as it goes."""

    def __init__(
        self, parts: Parts, ids: list[list[int]], wants: set[Place], outputs: int, *,
        full: bool = True,
    ) -> None:  # fmt: skip
        self.recorder = Recorder(parts, [len(row) for row in ids], wants, full)
        super().__init__(parts, ids, self.recorder, outputs)
        self.ids, self.run = ids, self.recorder.run

    def begin(self, hf: Any) -> None:
        """Embed the tokens, and learn what each block is called with."""
        with contextlib.ExitStack() as stack:
            if ("embed", 0) in self.recorder.wants:
                stack.callback(watch_embed(self.parts, self.recorder).remove)
            super().begin(hf)
        if self.recorder.full:
            self.run.arguments = self.arguments
        self.recorder.between(0, self.hidden)

    def step(self, layer: int) -> None:
        """One block, of which sites are kept."""
        recorder = self.recorder
        recorder.hidden = self.hidden
        with contextlib.ExitStack() as stack:
            for component, at in recorder.wants:
                if at == layer and component not in UNWATCHED:
                    handle = watch_slot(self.parts, component, layer, recorder.keep)
                    stack.callback(handle.remove)
            super().step(layer)
        recorder.between(layer + 1, self.hidden)


class Start:
    """What lanes rise on: recorded before them, or along with the first of them.

    Args:
        parts: The model.
        outputs: How its blocks give back the stream; None to record at once.
    """

    def __init__(self, parts: Parts, outputs: int | None) -> None:
        self.parts, self.outputs = parts, outputs
        self._waiting: list[Recording] = []

    def record(self, ids: list[list[int]], wants: set[Place], *, full: bool = False) -> Run:
        """A recorded run; one that waits for lanes is filled while they rise."""
        if self.outputs is None:
            return record(self.parts, ids, wants, full=full)
        self._waiting.append(Recording(self.parts, ids, wants, self.outputs, full=full))
        return self._waiting[-1].run

    def rise(self, packed: Packed | None) -> None:
        """Let lanes rise, if there are any, and do what waits for it."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            together(self.parts, waiting, packed)
        elif packed is not None:
            packed.run()


@contextlib.contextmanager
def _left_out(parts: Parts, called: Callable[..., None], outputs: int) -> Iterator[None]:
    """Blocks that pass the stream on as it is, and tell what they were called with."""
    plain = [block.forward for block in parts.blocks]
    layers = layers_of(parts.bridge)

    def through(layer: int) -> Callable[..., Any]:
        def forward(*args: Any, **kwargs: Any) -> Any:
            hidden, arguments = told(plain[layer], args, kwargs)
            called(layer, hidden, arguments)
            return hidden if outputs == 0 else (hidden, *[None] * (outputs - 1))

        return forward

    with contextlib.nullcontext() if layers is None else layers.asleep():
        try:
            for layer, block in enumerate(parts.blocks):
                block.__dict__["forward"] = through(layer)
            yield
        finally:
            for block in parts.blocks:
                block.__dict__.pop("forward", None)
