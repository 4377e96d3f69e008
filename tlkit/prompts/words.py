"""Words of questions and answers, and the runs of words that may be names, numbers or things.

Everything here is a rule on letters: nothing is learned, and nothing is known about the world.
"""

import re
from typing import NamedTuple

WORD = re.compile(
    r"[$€£#]?\d+(?:[.,:/]\d+)*(?:st|nd|rd|th|s)?\b(?:%|(?:-\w+)*)|[^\W\d_](?:\w|['\u2019\-.&](?=\w))*|&"
)
_INITIAL = re.compile(r"(?:[A-Z]|[A-Z](?:\.[A-Z])+|St|Dr|Mr|Mrs|Ms|Mt|Jr|Sr|Ft|No|Prof|Gen|Col)$")
_END = re.compile(r"[.!?]+[\"'\u201d\u2019)\]*]*(?=\s|$)")

_JOINING = "of de da di do du des del della la le el al van von der den ter bin ibn y and & the"
_FUNCTION = """
a an the this that these those it its he she they we you i his her their our your my him them us me
who whom whose which what when where why how is are was were be been being am has have had having
do does did done doing can could will would shall should may might must and or but nor if than then
so because as of in on at by for from to with into onto about over under between among during
before after above below through against within without near up down out off not no also often
usually typically generally commonly mostly mainly most more very quite known called named
considered located situated there here one some any each every other such same own only just both
all many much first second it's that's let's what's sure certainly course yes well answer question
correct indeed actually written wrote made used born found said based credited attributed according
s t like part type kind sort form member mix variety example term people various uses use blend
"""

CONNECTORS = frozenset(_JOINING.split())
"""May stand inside a name, between two capitals."""

FUNCTION = frozenset(_FUNCTION.split())
"""Words that are no thing of their own."""


class Word(NamedTuple):
    """A word and where it stands."""

    text: str
    start: int
    stop: int

    @property
    def capital(self) -> bool:
        """Whether it begins with a capital letter."""
        return self.text[0].isupper()

    @property
    def number(self) -> bool:
        """Whether it holds a digit."""
        return any(letter.isdigit() for letter in self.text)

    @property
    def function(self) -> bool:
        """Whether it is one of the words that are no thing of their own, or an adverb."""
        bare = self.text.casefold()
        return bare in FUNCTION or (len(bare) > 5 and bare.endswith("ly") and not self.capital)

    @property
    def stem(self) -> str:
        """What it is compared by: a name itself, else its first letters ('freezes', 'freeze')."""
        bare = re.sub(r"['\u2019]s?$", "", self.text.casefold())
        return bare if self.capital or self.number else bare[:5].rstrip("s") or bare


def words_of(text: str) -> list[Word]:
    """Cut a text into words.

    Example:
        >>> [word.text for word in words_of("J. K. Rowling's 1,000 elves, U.S.A.")]
        ['J', 'K', "Rowling's", '1,000', 'elves', 'U.S.A']
    """
    return [Word(found[0], found.start(), found.end()) for found in WORD.finditer(text)]


def touching(text: str, left: Word, right: Word) -> bool:
    """Say whether two words follow one another with nothing but space, or an initial's dot."""
    gap = text[left.stop : right.start]
    if gap.isspace():
        return "\n" not in gap
    if left.number and right.number and gap == ", ":
        return len(right.text) == 4  # July 4, 1776
    return gap.startswith(".") and gap[1:].isspace() and _INITIAL.match(left.text) is not None


def sentence_end(text: str, start: int = 0) -> int | None:
    """Return where the first sentence from `start` on ends, None while it goes on.

    A dot after an initial or an abbreviation ends no sentence, and neither does the end of the
    text: there may be more to come.

    Example:
        >>> text = "It was J. K. Rowling. She"
        >>> text[: sentence_end(text)]
        'It was J. K. Rowling.'
    """
    for found in _END.finditer(text, start):
        before = re.search(r"[\w.]+$", text[start : found.start()])
        if found[0] == "." and before and _INITIAL.match(before[0]):
            continue
        if found.end() < len(text) and text[start : found.start()].strip(" *\"'"):
            return found.end()
    line = text.find("\n", start)
    while line >= 0 and not text[start:line].strip():
        line = text.find("\n", line + 1)
    return None if line < 0 else line


def sentence_stop(text: str) -> int | None:
    """Return the end of the first sentence that says something, None while there is none.

    One such as "Sure!" or "Of course." holds function words alone, and is passed over.
    """
    start = 0
    while (end := sentence_end(text, start)) is not None:
        if any(not word.function for word in words_of(text[start:end])):
            return end
        start = end
    return None


def first_sentence(text: str) -> tuple[int, int]:
    """Return the characters of the first sentence that says something, or of all there is."""
    stop = sentence_stop(text)
    if stop is None:
        stop = len(text)
    start = 0
    while (end := sentence_end(text, start)) is not None and end < stop:
        if not words_of(text[end:stop]):
            break
        start = end
    return start, stop
