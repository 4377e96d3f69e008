"""Runs of words that may be an answer: names, numbers with their unit, and lower-case phrases."""

from collections.abc import Container, Iterator, Sequence

from tlkit.prompts.words import CONNECTORS, Word, touching

Run = tuple[Word, ...]

_ARTICLES = frozenset(("a", "an"))
_DETERMINERS = _ARTICLES | {"the", "its", "his", "her", "their"}


def strong(run: Run) -> bool:
    """Say whether a run is a name or a number, not a lower-case phrase."""
    return any(word.capital or word.number for word in run)


def runs_of(text: str, words: Sequence[Word], asked: Container[str] = frozenset()) -> Iterator[Run]:
    """Yield the runs of words that hold no function word, those inside brackets left out.

    A name ends at the first lower-case word ("Shakespeare wrote"), unless a determiner stands
    before it ("the Italian artist Raphael", "the Mexican peso"). Joining words stay inside a name
    ("Leonardo da Vinci") or such a phrase ("the European country of Germany"), but no word of the
    question is joined by them.

    Args:
        text: The text.
        words: Its words.
        asked: Stems of the question's words.
    """
    at = 0
    while at < len(words):
        if words[at].function or _in_brackets(text, words[at]):
            at += 1
            continue
        before = words[at - 1].text.casefold() if at else ""
        end = at + 1
        while end < len(words) and (more := _joined(text, words, end, before, asked)):
            end += more
        yield tuple(words[at:end])
        at = end


def _joined(text: str, words: Sequence[Word], at: int, before: str, asked: Container[str]) -> int:
    """How many words from `at` on belong to the run that ends before it."""
    last, word = words[at - 1], words[at]
    follows = words[at + 1] if at + 1 < len(words) else None
    phrase = before in _DETERMINERS
    if not touching(text, last, word):
        listed = before in _ARTICLES and text[last.stop : word.start] == ", "
        return int(listed and not word.function and not word.capital and not last.capital)
    if word.text.casefold() in CONNECTORS:
        if follows is None or follows.function or not touching(text, word, follows):
            return 0
        name = last.capital and follows.capital
        inside = phrase and word.text == "of" and follows.capital and follows.stem not in asked
        coupled = before in _ARTICLES and word.text == "and" and not follows.capital
        return 2 if name or inside or coupled else 0
    if word.function or (word.text.endswith("ed") and last.capital):
        return 0
    return int(last.number or word.number or phrase or last.capital == word.capital)


def _in_brackets(text: str, word: Word) -> bool:
    before = text[: word.start]
    return before.rfind("(") > before.rfind(")") and word.start > 0


def trimmed(run: Run, asked: set[str]) -> Run:
    """Drop restated lower-case words at both ends; restated capitals belong to a name.

    Args:
        run: A run that holds a word that is not in `asked`.
        asked: Stems of the question's words.
    """

    def loose(word: Word) -> bool:
        return word.stem in asked and not word.capital and not word.number

    while len(run) > 1 and loose(run[0]):
        run = run[1:]
    while len(run) > 1 and loose(run[-1]):
        run = run[:-1]
    return run
