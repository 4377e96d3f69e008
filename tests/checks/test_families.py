"""The table of families in the docs says what is so."""

from pathlib import Path

import pytest

from tlkit.checks.families import Row, page, try_family
from tlkit.engine.route import route_of
from tlkit.models.bridge import Parts
from tlkit.models.tiny import FAMILIES

PAGE = Path(__file__).parents[2] / "docs" / "families.md"


@pytest.fixture(scope="module")
def table():
    """The committed table: family to its cells."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line]
    return {row[0]: row[1:] for row in rows[2:]}


def test_the_table_has_every_family_once(table):
    assert tuple(table) == FAMILIES


@pytest.mark.parametrize("family", FAMILIES)
def test_classes_routes_and_patterns_are_current(table, tiny_bridge, family):
    """`python -m tlkit.checks.families` writes the table again."""
    parts = Parts(tiny_bridge(family))
    architecture, route, to_hugging_face, to_reference, patterns = table[family]
    assert architecture == type(parts.hf).__name__
    assert route == ("packed" if route_of(parts).packed else "reference")
    assert patterns == ("written" if parts.writable_patterns else "through v and z")
    assert float(to_hugging_face) < 1e-5
    assert to_reference == "-" if route == "reference" else float(to_reference) < 1e-5
    text = PAGE.read_text(encoding="utf-8")
    lacks = [line for line in text.splitlines() if line.startswith(f"- {family}: `")]
    assert bool(lacks) == bool(parts.unsupported("resid_mid") or parts.unsupported("mlp_post")
                               or parts.unsupported("attn_scores"))  # fmt: skip


def test_a_family_is_measured(tiny_bridge):
    row = try_family("gptj")
    assert row.architecture == "GPTJForCausalLM"
    assert row.packed and not row.writable
    assert 0 <= row.to_hugging_face < 1e-5
    assert row.to_reference is not None and row.to_reference < 1e-5
    assert set(row.refused) == {"resid_mid", "attn_scores"}


def test_the_page_says_what_a_row_says():
    rows = [
        Row("one", "OneForCausalLM", True, "", 0.0, 1.2e-6, {}, True),
        Row("two", "TwoForCausalLM", False, "of this", 2e-6, None,
            {"q": "why", "k": "why", "z": "other"}, False),
    ]  # fmt: skip
    text = page(rows)
    assert "| one | OneForCausalLM | packed | 0 | 1.2e-06 | written |" in text
    assert "| two | TwoForCausalLM | reference | 2.0e-06 | - | through v and z |" in text
    assert "- two: `q`, `k`: why; `z`: other." in text
    assert text.rstrip().endswith("- two: of this.")
