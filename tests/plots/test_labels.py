"""Tokens become labels that show what they are and never become markup."""

import pytest

from tlkit.plots.labels import safe, visible


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        (" the", "·the"),
        ("a b\t\n\r", "a·b\\t\\n\\r"),
        ("\x00\u200b", "\\u0000\\u200b"),
        ("日本", "日本"),
        ("x" * 40, "xxxxxxxx…xxxxxxxx"),
        ("", ""),
    ],
)
def test_what_cannot_be_seen_is_spelled(token, shown):
    assert visible(token) == shown


def test_markup_is_text():
    assert safe("<b>&</b>") == "&lt;b&gt;&amp;&lt;/b&gt;"
