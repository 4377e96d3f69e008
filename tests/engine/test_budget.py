"""Sizes in words against arithmetic done by hand."""

import pytest

from tlkit.engine.budget import bytes_of
from tlkit.errors import SpecError


@pytest.mark.parametrize(
    ("size", "wanted"),
    [
        (None, None),
        (1, 1),
        (4_000_000_000, 4_000_000_000),
        ("512", 512),
        ("512B", 512),
        ("2k", 2_000),
        ("2KB", 2_000),
        ("2 KiB", 2_048),
        (" 1.5MiB ", 1_572_864),
        ("500MB", 500_000_000),
        ("4GiB", 4_294_967_296),
        ("0.5T", 500_000_000_000),
    ],
)
def test_sizes(size, wanted):
    assert bytes_of(size) == wanted


@pytest.mark.parametrize(
    "size", ["", "4g", "GiB", "much", "-4GiB", -1, "4GiBs", "4 G i B", "1e9", "4,5G"]
)
def test_other_words_are_refused(size):
    with pytest.raises(SpecError, match="A budget is a number of bytes or text such as '4GiB'"):
        bytes_of(size)


@pytest.mark.parametrize("size", [0, "0", "0GiB", "0.4B"])
def test_nothing_is_no_budget(size):
    with pytest.raises(SpecError, match=f"budget of {size!r} leaves no byte to work with"):
        bytes_of(size)
