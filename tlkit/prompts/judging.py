"""Is an answer right? Names are looked for in it, both written in one plain way.

A name counts where it stands between word boundaries: "Oman" is not in "Roman". Case, accents,
punctuation, Unicode's several ways of writing one letter and a name's leading article do not
count. What the answer says about the name does: "It is not Paris" is taken for "Paris", as in
every study that judges by aliases.
"""

import re
import unicodedata
from collections.abc import Iterable
from typing import Literal

Verdict = Literal["right", "wrong", "unknown"]

_ARTICLES = ("a ", "an ", "the ")
_GROUPED = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_SILENT = dict.fromkeys(map(ord, "'\u2019\u02bc`\u00b4"))

# On the plain text of the answer; each says that no answer is given.
_UNKNOWN = re.compile(
    r"\b(?:"
    r"(?:i|we) (?:really |just |honestly )?(?:do not|dont|cannot|cant|can not|am not|could not"
    r"|couldnt|was not|have no|havent)"
    r"(?: \w+){0,2} ?(?:know|sure|certain|aware|able|answer|tell|say|find|provide|determine"
    r"|identify|verify|recall|remember|idea|information|familiar|access|confirm)"
    r"|im not (?:sure|certain|aware|able|familiar)"
    r"|i am (?:unable|unaware|unsure|uncertain|sorry)|im (?:unable|unaware|unsure|sorry)"
    r"|(?:is|are|was|were|remains?) (?:not known|unknown|unclear|uncertain)"
    r"|not enough information|no (?:specific |available |reliable |public )?information"
    r")\b|^(?:unknown|not sure|no idea|sorry|dont know|do not know)\b"
)


def plain(text: str) -> str:
    """Write a text in lower-case words with one space between them.

    Accents, apostrophes and the commas inside numbers go; every other mark is a space. Each
    ideograph is a word, as no spaces are written between them.

    Example:
        >>> plain("The Beyoncé  song—No.1, it's 1,000 ft.")
        'the beyonce song no 1 its 1000 ft'
    """
    text = _GROUPED.sub("", text.translate(_SILENT))
    letters = []
    for letter in unicodedata.normalize("NFKD", text):
        if unicodedata.combining(letter):
            continue
        if not letter.isalnum():
            letters.append(" ")
        elif unicodedata.east_asian_width(letter) == "W" and not letter.isdigit():
            letters.append(f" {letter} ")
        else:
            letters.append(letter)
    return " ".join("".join(letters).casefold().split())


def plain_name(name: str) -> str:
    """Write a name in plain words, without an article before it.

    Example:
        >>> plain_name("The Hague"), plain_name("Vitamin A"), plain_name("A")
        ('hague', 'vitamin a', 'a')
    """
    words = plain(name)
    for article in _ARTICLES:
        if words.startswith(article):
            return words.removeprefix(article)
    return words


def contains(text: str, name: str) -> bool:
    """Say whether a name stands in a text, between word boundaries.

    Example:
        >>> contains("It was the Romans.", "Oman"), contains("In OMÁN, I think", "Oman")
        (False, True)
    """
    wanted = plain_name(name)
    return bool(wanted) and f" {wanted} " in f" {plain(text)} "


def names_none(text: str) -> bool:
    """Say whether an answer says that it does not know."""
    return _UNKNOWN.search(plain(text)) is not None


def judge(text: str, aliases: Iterable[str]) -> Verdict:
    """Judge an answer by the names that are right.

    Returns:
        ``"unknown"`` where the answer says that it does not know, or says nothing; else
        ``"right"`` where it holds one of the names, or ``"wrong"``.

    Example:
        >>> judge("That would be Paris.", ["Paris"]), judge("I don't know.", ["Paris"])
        ('right', 'unknown')
    """
    if not plain(text) or names_none(text):
        return "unknown"
    return "right" if any(contains(text, alias) for alias in aliases) else "wrong"
