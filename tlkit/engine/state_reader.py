"""Reads activations of lanes while they rise."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from tlkit.engine.lanes import Lane
from tlkit.engine.packed import Packed
from tlkit.engine.record import watch_slot
from tlkit.engine.sources import Place
from tlkit.models.bridge import Parts

STREAMS = {"resid_pre": 0, "resid_post": 1}
"""Sites that are the stream itself: how many blocks behind their own layer it is theirs."""


class StateReader:
    """Copies what is asked for out of a packed run, lane by lane; what is unchanged it leaves out.

    Attributes:
        values: Per place and lane, what changed: index among the lane's positions to activation.
    """

    def __init__(
        self, parts: Parts, lanes: Sequence[Lane], positions: Sequence[tuple[int, ...]],
        places: Sequence[Place],
    ) -> None:  # fmt: skip
        self.parts, self.lanes = parts, lanes
        self.changed = [
            [(i, p) for i, p in enumerate(positions[lane.example]) if p >= lane.start]
            for lane in lanes
        ]
        self.index = {id(lane): at for at, lane in enumerate(lanes)}
        self.values: dict[Place, list[dict[int, Tensor]]] = {
            place: [{} for _ in lanes] for place in places
        }
        self._handles: list[Any] = []

    def after(self, layer: int, packed: Packed) -> None:
        """Read the stream that enters a block, and watch inside this block alone."""
        self.close()
        for place in self.values:
            if place[0] not in STREAMS and place[1] == layer:
                self._watch(place, packed)
        for component, shift in STREAMS.items():
            place = (component, layer - shift)
            if place in self.values:
                for at, lane in enumerate(self.lanes):
                    if lane.entry > layer:
                        break
                    shifted = packed.offsets[at] - lane.start
                    for i, position in self.changed[at]:
                        self.values[place][at][i] = packed.stream[position + shifted].clone()

    def _watch(self, place: Place, packed: Packed) -> None:
        def seen(component: str, layer: int, value: Tensor) -> None:
            view = packed.view
            if component == "resid_mid":
                value = value + packed.hidden
            for local, lane in enumerate(view.lanes):
                at = self.index[id(lane)]
                for i, position in self.changed[at]:
                    if view.own or lane.touched is None or position in lane.touched:
                        found = value[view.at(local, (position,))][0]
                        self.values[place][at][i] = found.clone()

        self._handles.append(watch_slot(self.parts, *place, seen))

    def close(self) -> None:
        """Stop watching."""
        while self._handles:
            self._handles.pop().remove()
