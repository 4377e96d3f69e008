"""Make documents.jsonl: four long texts, each drawn from its own hand-written grammar.

A text is a title, an opening, and sections of a heading and some paragraphs, until it is long
enough. No sentence of five words or more comes twice in a text. `#` in a heading or paragraph is
its running number.
"""

import re
from itertools import count
from pathlib import Path

from tlkit.prompts.samples.grammar import Grammar

GRAMMARS = Path(__file__).parent / "documents"
# kind, seed, paragraphs in a section, characters to reach (4 or more a token of SmolLM2 or less).
PLANS = (
    ("manual", 11, 6, 29_500),
    ("diary", 12, 5, 28_500),
    ("meeting", 13, 13, 29_500),
    ("catalogue", 14, 8, 27_500),
)


def sentences(text: str) -> list[str]:
    """The sentences of a text that are long enough to be noticed when repeated."""
    return [part for part in re.split(r"(?<=[.?!])\s+", text) if len(part.split()) >= 5]


def capitals(text: str) -> str:
    """The text with a capital letter at the start of each sentence and of each speech."""
    return re.sub(r"(^|[.?!] |^[A-Z ]+: )([a-z])", lambda at: at[1] + at[2].upper(), text)


def fresh(grammar: Grammar, seen: set[str]) -> str:
    """A paragraph none of whose sentences was seen; remembers its sentences."""
    while True:
        paragraph = capitals(grammar.draw("paragraph"))
        new = sentences(paragraph)
        if len(set(new)) == len(new) and seen.isdisjoint(new):
            seen.update(new)
            return paragraph


def document(kind: str, seed: int, paragraphs: int, length: int) -> dict[str, str]:
    """One text of at least `length` characters."""
    grammar = Grammar((GRAMMARS / f"{kind}.txt").read_text(encoding="utf-8"), seed=seed)
    title = grammar.draw("title")
    parts, seen, sections = [title, grammar.draw("opening")], set[str](), count(1)
    while sum(map(len, parts)) < length:
        section = next(sections)
        parts.append(capitals(grammar.draw("heading").replace("#", str(section))))
        for number in range((section - 1) * paragraphs, section * paragraphs):
            parts.append(fresh(grammar, seen).replace("#", str(number + 1)))
    return {"id": kind, "kind": kind, "title": title, "text": "\n\n".join(parts) + "\n"}


def documents() -> list[dict[str, str]]:
    """All four texts."""
    return [document(*plan) for plan in PLANS]
