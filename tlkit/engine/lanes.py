"""Lanes: one condition on one example, as the tokens that it changes."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tlkit.engine.edits import Edit, Worked, narrowed
from tlkit.engine.sequences import Sequences


@dataclass(eq=False)
class Lane:
    """A condition on one example: positions ``start`` to the end change, from layer ``entry`` on.

    Attributes:
        cell: Index of the condition.
        example: Index of the example.
        start: First position that changes.
        stop: Length of the example.
        entry: First block whose inside or input changes; ``n_layers`` where only its output does.
        touched: Positions that change within the entry block, where that is not all from start.
        edits: Edits by layer; those of ``resid_post`` stand at the next layer's ``resid_pre``.
    """

    cell: int
    example: int
    start: int
    stop: int
    entry: int
    touched: tuple[int, ...] | None
    edits: dict[int, list[Edit]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """How many tokens change."""
        return self.stop - self.start


def make_lane(cell: int, example: int, worked: Worked, sequences: Sequences) -> Lane:
    """The lane of a condition that changes something."""
    by_layer: dict[int, list[Edit]] = defaultdict(list)
    for edit in worked.edits:
        edit = narrowed(edit, sequences, example)
        by_layer[edit.layer + (edit.component == "resid_post")].append(edit)
    for several in by_layer.values():  # what leaves a block comes before what enters the next
        several.sort(key=lambda edit: edit.component != "resid_post")
    entry = min(by_layer)
    start = min(min(edit.positions) for edits in by_layer.values() for edit in edits)
    touched = None
    first = by_layer[entry]
    if not any(edit.spreading or edit.component == "resid_post" for edit in first):
        touched = tuple(sorted({p for edit in first for p in edit.positions}))
    length = sequences.length(sequences.base, example)
    return Lane(cell, example, start, length, entry, touched, dict(by_layer))


@dataclass(eq=False)
class View:
    """Some lanes' tokens laid along one axis for one call of a block.

    Attributes:
        lanes: The lanes.
        example, lane, column, position: Per lane its row in the recorded base run; and per row:
            its lane, its column in the lane's block of queries, and its token position.
        queries: ``[lane, column]`` token positions, 0 where padded.
        width: Columns, the most rows that a lane has here.
        own: Whether the rows' own keys replace the base run's.
        first: Row at which each lane begins.
        rows: Where the rows lie in the packed stream (a slice, if they are all of the lanes').
    """

    lanes: Sequence[Lane]
    example: Tensor
    lane: Tensor
    column: Tensor
    position: Tensor
    queries: Tensor
    width: int
    own: bool
    first: list[int]
    rows: slice | Tensor
    keys: int
    edits: dict[str, list[tuple[int, Edit]]] = field(default_factory=dict)
    biases: dict[int, Tensor] = field(default_factory=dict)

    def at(self, index: int, positions: tuple[int, ...]) -> slice | Tensor:
        """The rows of a lane's positions in this view."""
        begin, columns = self.first[index], self.columns(index, positions)
        if isinstance(columns, slice):
            return slice(begin + columns.start, begin + columns.stop)
        return columns + begin

    def columns(self, index: int, positions: tuple[int, ...]) -> slice | Tensor:
        """The same, as columns of the lane's block of queries."""
        lane = self.lanes[index]
        if self.own or lane.touched is None:
            found = [p - lane.start for p in positions]
        else:
            found = [lane.touched.index(p) for p in positions]
        if found == list(range(found[0], found[0] + len(found))):
            return slice(found[0], found[0] + len(found))
        return torch.tensor(found, device=self.lane.device)


def make_view(
    lanes: Sequence[Lane], offsets: Sequence[int], layer: int, device: torch.device, *,
    own: bool, origin: int = 0,
) -> View:  # fmt: skip
    """Lay lanes out: all their changed tokens (``own``), or just those touched on entering.

    Args:
        lanes: Lanes that are next to each other in the packed stream.
        offsets: Where each begins there.
        layer: The block that is called, whose edits are collected.
        device: Where index tensors go.
        own: See `View`.
        origin: The example that is the recorded base run's first row.
    """
    if own:
        counts = torch.tensor([lane.rows for lane in lanes])
        starts = torch.tensor([lane.start for lane in lanes])
        ends = counts.cumsum(0)
        lane = torch.repeat_interleave(torch.arange(len(lanes)), counts)
        column = torch.arange(int(ends[-1])) - (ends - counts)[lane]
        position = column + starts[lane]
        rows: slice | Tensor = slice(offsets[0], offsets[0] + len(lane))
    else:
        touched = [lane.touched or () for lane in lanes]
        counts = torch.tensor([len(one) for one in touched])
        ends = counts.cumsum(0)
        lane = torch.repeat_interleave(torch.arange(len(lanes)), counts)
        column = torch.arange(int(ends[-1])) - (ends - counts)[lane]
        position = torch.tensor([p for one in touched for p in one])
        begin = torch.tensor([o - one.start for o, one in zip(offsets, lanes, strict=True)])
        rows = (begin[lane] + position).to(device)
    width = int(counts.max())
    queries = torch.zeros(len(lanes), width, dtype=torch.long)
    queries[lane, column] = position
    view = View(
        lanes, torch.tensor([one.example - origin for one in lanes]).to(device), lane.to(device),
        column.to(device), position.to(device), queries.to(device), width, own,
        (ends - counts).tolist(), rows, max(one.stop for one in lanes),
    )  # fmt: skip
    for index, one in enumerate(lanes):
        for edit in one.edits.get(layer, ()):
            view.edits.setdefault(edit.component, []).append((index, edit))
    return view
