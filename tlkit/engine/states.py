"""Activations at chosen positions of sequences, unchanged and under edits.

The packed way reads them while changed tokens rise through the blocks (see `Packed`), so that
edits which hold from block 0 on are read at every block in one run: the state behind block k is
what "blocks 0 to k edited" gives, for causality lets no later block reach back.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tlkit.engine.edits import Worked
from tlkit.engine.lanes import Lane, make_lane
from tlkit.engine.packed import Packed
from tlkit.engine.packed_values import (
    CHUNK,
    DEFAULT_BUDGET,
    run_bytes_per_token,
    working_bytes,
)
from tlkit.engine.record import Run
from tlkit.engine.reference import Reference
from tlkit.engine.reference import capture as capture_slowly
from tlkit.engine.route import route_of
from tlkit.engine.sequences import Sequences
from tlkit.engine.sources import Captured, Place, Sources
from tlkit.engine.state_reader import STREAMS, StateReader
from tlkit.engine.together import Start
from tlkit.engine.values import Progress
from tlkit.errors import SpecError
from tlkit.models.bridge import Parts

UNREAD = ("embed", "z", "pattern", "attn_scores")
"""Sites that a packed run with edits does not read."""

GROUP_TOKENS = 4096
"""Most tokens of base runs at once: enough to keep products large, and progress is told often."""

States = dict[Place, list[Tensor]]
"""Per place and example ``[pos, ...]``, at the positions that were asked for."""


def states(
    parts: Parts,
    sequences: Sequences,
    positions: Sequence[tuple[int, ...]],
    places: Sequence[Place],
    conditions: Mapping[str, Sequence[Worked]],
    *,
    packed: bool = True,
    budget: int | None = None,
    progress: Progress | None = None,
) -> dict[str, States]:
    """Read places at positions, of the base run and under conditions.

    Args:
        parts: The model.
        sequences: Token sequences; their base run is read.
        positions: Per example, where.
        places: What.
        conditions: Name to one set of worked-out edits per example.
        packed: Whether to run packed, or one hooked forward pass per condition and example.
        budget: Bytes that may be taken besides the weights.
        progress: Called with (examples done, examples in all).

    Returns:
        ``"base"`` and each condition to its states. An example for which a condition is missing
        has NaN.

    Raises:
        SpecError: A place cannot be read packed under edits.
    """
    unread = [component for component, _ in places if component in UNREAD]
    if packed and conditions and unread:
        raise SpecError(
            f"{unread[0]!r} under a condition is read by engine='reference' only; the packed "
            f"engine reads streams, q, k, v, and what attention and MLPs put out."
        )
    found: dict[str, States] = {
        name: {place: [] for place in places} for name in ("base", *conditions)
    }
    count = len(sequences.prompts)
    for examples in example_groups(parts, sequences, len(conditions), budget) if packed else ():
        for name, some in _packed(parts, sequences, positions, places, conditions, examples):
            for place, rows in some.items():
                found[name][place] += rows
        if progress:
            progress(examples.stop, count)
    for example in range(0 if packed else count):
        for name, some in _slow(parts, sequences, positions, places, conditions, example):
            for place, row in some.items():
                found[name][place].append(row)
        if progress:
            progress(example + 1, count)
    return found


def example_groups(
    parts: Parts, sequences: Sequences, conditions: int, budget: int | None
) -> list[range]:
    """Neighbouring examples whose recorded run and lanes fit half of the budget."""
    per_token = run_bytes_per_token(parts) + conditions * parts.d_model * parts.dtype.itemsize
    most = (budget or DEFAULT_BUDGET) // 2
    lengths = [len(ids) for ids in sequences.runs[sequences.base]]
    groups, first, width = [], 0, 0
    for i, length in enumerate(lengths):
        width = max(width, length)
        tokens = (i + 1 - first) * width
        many = tokens > GROUP_TOKENS and not parts.streamed  # from disk, a pass costs most
        each = per_token + working_bytes(parts, width)
        if i > first and (many or tokens * each > most):
            groups.append(range(first, i))
            first, width = i, length
    return [*groups, range(first, len(lengths))] if lengths else []


def _packed(
    parts: Parts, sequences: Sequences, positions: Sequence[tuple[int, ...]],
    places: Sequence[Place], conditions: Mapping[str, Sequence[Worked]], examples: range,
) -> list[tuple[str, States]]:  # fmt: skip
    """One group: its base run, and all its conditions' lanes in one packed run."""
    inside = {place for place in places if place[0] not in STREAMS}
    ids = sequences.runs[sequences.base][examples.start : examples.stop]
    named = list(conditions.items())
    lanes = [
        make_lane(cell, example, worked[example], sequences)
        for cell, (_, worked) in enumerate(named)
        for example in examples
        if worked[example].status == "run"
    ]
    lanes.sort(key=lambda one: (one.entry, one.touched is not None, one.rows, one.example))
    start = Start(parts, route_of(parts).outputs if lanes and parts.streamed else None)
    base = start.record(ids, inside | {("embed", 0)}, full=True)
    reader = StateReader(parts, lanes, positions, places)
    if lanes:
        worked = [one for _, several in named for one in several]
        _run(parts, start, base, sequences, worked, lanes, reader, examples)
    own = {
        place: [
            _base_value(base, place, i)[list(positions[e])] for i, e in enumerate(examples)
        ]
        for place in places
    }  # fmt: skip
    done: list[tuple[str, States]] = [("base", own)]
    for cell, (name, several) in enumerate(named):
        rows = {place: [row.clone() for row in own[place]] for place in places}
        for place in places:
            for i, example in enumerate(examples):
                if several[example].status == "missing":
                    rows[place][i].fill_(torch.nan)
        for index, lane in enumerate(lanes):
            if lane.cell == cell:
                for place in places:
                    for at, value in reader.values[place][index].items():
                        rows[place][lane.example - examples.start][at] = value
        done.append((name, rows))
    return done


def _run(
    parts: Parts, start: Start, base: Run, sequences: Sequences, worked: Sequence[Worked],
    lanes: Sequence[Lane], reader: StateReader, examples: range,
) -> None:  # fmt: skip
    """Let lanes rise while the reader reads."""

    def captured(ids: list[list[int]], places: set[Place]) -> Captured:
        return start.record(ids, places).sites

    edits = [edit for one in worked for edit in one.edits]
    sources = Sources(captured, sequences, edits, examples)
    packed = Packed(
        parts, base, sources, lanes, chunk=CHUNK, origin=examples.start, after=reader.after
    )
    try:
        start.rise(packed)
    finally:
        reader.close()


def _base_value(base: Run, place: Place, row: int) -> Tensor:
    component, layer = place
    if component in STREAMS:
        return base.stream[layer + STREAMS[component]][row]
    return base.sites[place][row]


def _slow(
    parts: Parts, sequences: Sequences, positions: Sequence[tuple[int, ...]],
    places: Sequence[Place], conditions: Mapping[str, Sequence[Worked]], example: int,
) -> list[tuple[str, dict[Place, Tensor]]]:  # fmt: skip
    """One example by hooked forward passes."""
    ids, where = sequences.runs[sequences.base][example], list(positions[example])

    def captured(several: list[list[int]], wanted: set[Place]) -> Captured:
        return capture_slowly(parts, several, wanted)

    done = []
    for name, edits in [("base", ()), *((n, w[example].edits) for n, w in conditions.items())]:
        reference = Reference(
            parts, Sources(captured, sequences, edits, range(example, example + 1))
        )
        sites = reference.sites(ids, tuple(edits), example, places)
        rows = {place: value[where] for place, value in sites.items()}
        if name != "base" and conditions[name][example].status == "missing":
            rows = {place: torch.full_like(value, torch.nan) for place, value in rows.items()}
        done.append((name, rows))
    return done
