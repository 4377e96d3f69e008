"""Which position of a clean prompt corresponds to each position of its corrupted twin.

Prompts of equally many tokens correspond position by position. Others are cut into stretches:
each pair of spans with one name is a stretch of its own, and so is what lies between two such
pairs. Stretches of equal length correspond position by position. In a pair of spans of unequal
length the last token corresponds to the last token, and what stands before it is a stretch. In
any other stretch of unequal length only the tokens of its common beginning and its common end
correspond. What is left is unmapped: -1, never a guess.
"""

from collections.abc import Iterable, Sequence

from tlkit.prompts.spans import Span

UNMAPPED = -1

Pair = tuple[Span, Span]
"""A stretch of the clean prompt and the stretch of the corrupted prompt that belongs to it."""


def shared_ends(clean: Sequence[int], corrupted: Sequence[int]) -> tuple[int, int]:
    """Count the tokens of the common beginning, then those of the common end of what is left."""
    shorter = min(len(clean), len(corrupted))
    start = 0
    while start < shorter and clean[start] == corrupted[start]:
        start += 1
    end = 0
    while end < shorter - start and clean[-1 - end] == corrupted[-1 - end]:
        end += 1
    return start, end


def _ordered(pairs: Iterable[Pair]) -> list[Pair]:
    """Keep the span pairs that follow one another on both sides; drop those that cross."""
    kept: list[Pair] = []
    for clean, corrupted in sorted(set(pairs)):
        if not kept or (clean.start >= kept[-1][0].stop and corrupted.start >= kept[-1][1].stop):
            kept.append((clean, corrupted))
    return kept


def _stretches(pairs: list[Pair], lengths: tuple[int, int]) -> list[Pair]:
    """Cut two prompts at their spans, and spans of unequal length before their last token."""
    cut: list[Pair] = []
    at = (0, 0)
    for clean, corrupted in [*pairs, (Span(lengths[0], lengths[0]), Span(lengths[1], lengths[1]))]:
        cut.append((Span(at[0], clean.start), Span(at[1], corrupted.start)))
        at = (clean.stop, corrupted.stop)
        if clean.stop - clean.start == corrupted.stop - corrupted.start:
            cut.append((clean, corrupted))
        else:
            last = (clean.stop - 1, corrupted.stop - 1)
            cut.append((Span(clean.start, last[0]), Span(corrupted.start, last[1])))
            cut.append((Span(last[0], clean.stop), Span(last[1], corrupted.stop)))
    return cut


def align(
    clean: Sequence[int], corrupted: Sequence[int], pairs: Iterable[Pair] = ()
) -> tuple[int, ...]:
    """Return the clean position of each corrupted position, or -1.

    Args:
        clean: Token ids of the clean prompt.
        corrupted: Token ids of the corrupted prompt.
        pairs: Spans with one name in both; of spans that overlap or cross, the first in the clean
            prompt counts.

    Returns:
        One clean position per corrupted position, rising, or -1 where nothing corresponds.

    Example:
        >>> align([5, 6, 7, 9], [5, 8, 9])
        (0, -1, 3)
        >>> align([5, 6, 7, 9], [5, 8, 9], [(Span(1, 3), Span(1, 2))])
        (0, 2, 3)
    """
    if len(clean) == len(corrupted):
        return tuple(range(len(clean)))
    mapped = [UNMAPPED] * len(corrupted)
    for left, right in _stretches(_ordered(pairs), (len(clean), len(corrupted))):
        wide, narrow = left.stop - left.start, right.stop - right.start
        if wide == narrow:
            start, end = wide, 0
        else:
            start, end = shared_ends(clean[slice(*left)], corrupted[slice(*right)])
        for step in range(start):
            mapped[right.start + step] = left.start + step
        for step in range(1, end + 1):
            mapped[right.stop - step] = left.stop - step
    return tuple(mapped)


def counterpart(clean: Sequence[int], corrupted: Sequence[int], span: Span) -> Span | None:
    """Return the corrupted prompt's span that takes the place of a clean span, if it is certain.

    It is where the prompts have equally many tokens, and where each edge of the span lies in
    their common beginning or their common end: then nothing but the span was replaced.
    """
    if len(clean) == len(corrupted):
        return span
    shared, end = shared_ends(clean, corrupted)
    tail, shift = len(clean) - end, len(corrupted) - len(clean)
    if not (span.start <= shared or span.start >= tail):
        return None
    if not (span.stop <= shared or span.stop >= tail):
        return None
    start = span.start + shift if span.start >= tail else span.start
    stop = span.stop if span.stop <= shared else span.stop + shift
    return Span(start, stop) if start < stop else None


def columns(alignment: Sequence[int], clean_length: int) -> list[tuple[int | None, int | None]]:
    """Return (clean, corrupted) positions side by side, None where one has no counterpart."""
    side_by_side: list[tuple[int | None, int | None]] = []
    done = 0
    for position, source in enumerate(alignment):
        if source != UNMAPPED:
            side_by_side += [(missing, None) for missing in range(done, source)]
            done = source + 1
        side_by_side.append((None if source == UNMAPPED else source, position))
    return side_by_side + [(missing, None) for missing in range(done, clean_length)]
