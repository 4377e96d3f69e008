"""Faults to plant: let the common end run into the common beginning; shift a span by one; map
crossing spans."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tlkit.prompts.alignment import align, columns, counterpart, shared_ends
from tlkit.prompts.spans import Span

ROW = st.lists(st.integers(0, 3), min_size=1, max_size=12)


@st.composite
def pairs_with_spans(draw):
    """Two rows of tokens and up to three pairs of spans, some crossing."""
    rows = draw(st.tuples(ROW, ROW))
    spans = []
    for _ in range(draw(st.integers(0, 3))):
        both = []
        for row in rows:
            start = draw(st.integers(0, len(row) - 1))
            both.append(Span(start, draw(st.integers(start + 1, len(row)))))
        spans.append(tuple(both))
    return *rows, spans


def test_equally_long_prompts_correspond_position_by_position():
    assert align([1, 2, 3], [4, 2, 5]) == (0, 1, 2)
    assert align([1, 2, 3], [4, 2, 5], [(Span(0, 1), Span(2, 3))]) == (0, 1, 2)


def test_common_ends_correspond_and_the_middle_does_not():
    # The capital of Italy is / The capital of Burk ina F aso is
    assert align([1, 2, 3, 4, 9], [1, 2, 3, 5, 6, 7, 8, 9]) == (0, 1, 2, -1, -1, -1, -1, 4)
    assert align([1, 2, 3, 5, 6, 7, 8, 9], [1, 2, 3, 4, 9]) == (0, 1, 2, -1, 7)


def test_eight_tokens_against_six_leave_two_unmapped():
    assert align([1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 6, 7, 8]) == (0, 1, 2, 5, 6, 7)
    mapped = align([1, 2, 3, 6, 7, 8], [1, 2, 3, 4, 5, 6, 7, 8])
    assert mapped == (0, 1, 2, -1, -1, 3, 4, 5)


def test_the_last_token_of_a_span_corresponds_to_the_last_token():
    clean, corrupted = [1, 2, 3, 4, 9], [1, 2, 3, 5, 6, 7, 8, 9]
    spans = [(Span(3, 4), Span(3, 7))]
    assert align(clean, corrupted, spans) == (0, 1, 2, -1, -1, -1, 3, 4)


def test_spans_count_more_than_common_ends():
    # ... Paris Hilton went / ... Paris went
    clean, corrupted = [1, 7, 8, 9], [1, 7, 9]
    assert align(clean, corrupted) == (0, 1, 3)
    assert align(clean, corrupted, [(Span(1, 3), Span(1, 2))]) == (0, 2, 3)


def test_stretches_between_spans_correspond_where_they_are_equally_long():
    # [A A] of X , [B] Y   against   [A] of Z , [B B B] Y
    clean, corrupted = [1, 2, 10, 11, 12, 3, 20], [4, 10, 13, 12, 5, 6, 7, 20]
    spans = [(Span(0, 2), Span(0, 1)), (Span(5, 6), Span(4, 7))]
    assert align(clean, corrupted, spans) == (1, 2, 3, 4, -1, -1, 5, 6)


def test_of_spans_that_cross_the_first_counts():
    clean, corrupted = [1, 2, 3, 4], [4, 2, 2, 2, 1]
    crossing = [(Span(0, 1), Span(4, 5)), (Span(3, 4), Span(0, 1))]
    assert align(clean, corrupted, crossing) == (-1, -1, -1, -1, 0)


@settings(deadline=None)
@given(pairs_with_spans())
def test_an_alignment_rises_and_maps_each_position_once(pair):
    clean, corrupted, spans = pair
    mapped = align(clean, corrupted, spans)
    used = [position for position in mapped if position >= 0]
    assert len(mapped) == len(corrupted)
    assert used == sorted(set(used))
    assert all(0 <= position < len(clean) for position in used)
    if len(clean) == len(corrupted):
        assert mapped == tuple(range(len(clean)))
    elif len(spans) == 1:
        assert mapped[spans[0][1].stop - 1] == spans[0][0].stop - 1


@settings(deadline=None)
@given(ROW, ROW)
def test_without_spans_unequal_prompts_map_equal_tokens_only(clean, corrupted):
    mapped = align(clean, corrupted)
    if len(clean) != len(corrupted):
        pairs = [(clean[at], token) for at, token in zip(mapped, corrupted, strict=True) if at >= 0]
        assert all(left == right for left, right in pairs)
        assert len(pairs) == sum(shared_ends(clean, corrupted))


@settings(deadline=None)
@given(ROW, ROW, ROW, st.lists(st.integers(0, 3), max_size=6))
def test_a_replaced_span_is_found_again(before, inside, after, other):
    """The truth is how the pair was made: nothing but the span was replaced."""
    # Marks that occur nowhere else, so that common ends cannot run into the span.
    clean = [*before, 100, *inside, 101, *after]
    corrupted = [*before, 200, *other, 201, 202, *after]
    if len(clean) == len(corrupted):
        return
    start = len(before)
    found = counterpart(clean, corrupted, Span(start, start + 2 + len(inside)))
    assert found == Span(start, start + 3 + len(other))
    if len(inside) > 0:  # a part of what was replaced has no certain place
        assert counterpart(clean, corrupted, Span(start + 1, start + 2)) is None
    if start > 0:
        assert counterpart(clean, corrupted, Span(0, start)) == Span(0, start)
    tail = counterpart(clean, corrupted, Span(len(clean) - 1, len(clean)))
    assert tail == Span(len(corrupted) - 1, len(corrupted))


def test_what_was_only_inserted_belongs_to_neither_neighbour():
    clean, corrupted = [1, 2, 3], [1, 9, 9, 2, 3]
    assert counterpart(clean, corrupted, Span(0, 1)) == Span(0, 1)
    assert counterpart(clean, corrupted, Span(1, 2)) == Span(3, 4)
    assert counterpart(clean, corrupted, Span(0, 2)) == Span(0, 4)
    assert counterpart(corrupted, clean, Span(1, 3)) is None
    assert counterpart(corrupted, clean, Span(0, 4)) == Span(0, 2)


@settings(deadline=None)
@given(pairs_with_spans())
def test_columns_show_each_position_once_and_in_order(pair):
    clean, corrupted, spans = pair
    mapped = align(clean, corrupted, spans)
    shown = columns(mapped, len(clean))
    assert [left for left, _ in shown if left is not None] == list(range(len(clean)))
    assert [right for _, right in shown if right is not None] == list(range(len(corrupted)))
    both = {right: left for left, right in shown if None not in (left, right)}
    assert both == {i: at for i, at in enumerate(mapped) if at >= 0}
