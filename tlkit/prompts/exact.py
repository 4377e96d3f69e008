"""The exact tokens of a question and of an answer: which words it turns on.

One rule each, that reads the question and the answer and nothing else. Above all it does not know
whether the answer is right: a rule that did would put right and wrong answers at different kinds
of place, and a probe would learn the rule (the fault of taking the gold alias where there is one).
"""

import re
from collections.abc import Sequence

from tlkit.prompts.runs import Run, runs_of, strong, trimmed
from tlkit.prompts.words import Word, first_sentence, words_of

Found = tuple[int, int]

LAST_WORDS = 3
"""How many of a question's last words are taken where nothing better is found."""

_QUOTED = re.compile(r"[\"“«]([^\"”»]{2,})[\"”»]|(?<!\w)['\u2018](\w[^'\u2019]+)['\u2019](?!\w)")
_YES_NO = re.compile(r"(?:yes|no)\b(?=\s*(?:[,.;:!*]|$))", re.IGNORECASE)
_COPULA = frozenset(("is", "are", "was", "were", "equals", "means", "be", "became"))
_RELATIVE = frozenset(("which", "that", "who"))
_MARKERS = frozenset(("specifically", "namely", "including"))
_NUMERIC = re.compile(
    r"\b(?:how (?:many|much|old|far|long|tall|big|high|deep|heavy|fast|often|large)|when"
    r"|(?:what|which)(?: is the)? (?:year|date|day|number|percentage|temperature|age|time|decade"
    r"|century))\b",
    re.IGNORECASE,
)
_PLACE = re.compile(
    r"\b(?:where|country|countries|nation|state|city|town|continent|county|province|region)\b",
    re.IGNORECASE,
)
_WIDER = re.compile(r"\b(?:country|countries|nation|state|continent)\b", re.IGNORECASE)
_PROPER = re.compile(
    r"\b(?:who|whom|whose|capital|author|writer|name|river|ocean|sea|island|planet|company"
    r"|director|band|singer|king|queen|president|team|club|artist|painter|inventor|composer"
    r"|producer|screenwriter|actor|actress)\b",
    re.IGNORECASE,
)


def exact_answer(question: str, answer: str) -> Found | None:
    """Locate the exact answer: the words of an answer that a question asks for.

    The first sentence that says something is searched for runs (see `tlkit.prompts.runs`): names
    and numbers are *strong*, lower-case phrases *weak*. Words of the question are a restatement:
    a run of those alone is passed over. The first that there is of the following is taken:

    1. a first word "yes" or "no"; a quotation that the question does not hold;
    2. the first number, if the question asks for one;
    3. the first strong run after "specifically", "namely" or "including", unless the question
       asks for a country, state or continent;
    4. the first run with a capital behind an "in" or "on", if the question asks for a place;
    5. the first run with a capital, if the question asks for a name or a place;
    6. the first strong run before the first "is" (or "was", …): "Paris is the capital";
    7. the first run after the first "is"; 8. the first run; 9. the last word.

    Of a list of places ("Rome, Italy") a country, state or continent is the last.

    Args:
        question: The question.
        answer: What was generated.

    Returns:
        First character and the one after the last, or None if there are no words.

    Example:
        >>> text = "The capital of France is Paris."
        >>> text[slice(*exact_answer("What is the capital of France?", text))]
        'Paris'
    """
    start, stop = first_sentence(answer)
    text = answer[:stop]
    words = [word for word in words_of(text) if word.start >= start]
    if not words:
        return None
    if _YES_NO.match(text, words[0].start):
        return words[0].start, words[0].stop
    quoted = _quoted(text, start, question)
    if quoted:
        return quoted
    asked = {stem for word in words_of(question) for stem in (word.stem, word.text.casefold())}
    runs = [trimmed(run, asked) for run in runs_of(text, words, asked) if _new(run, asked)]
    found = _choose(question, text, words, runs) or (words[-1],)
    return found[0].start, found[-1].stop


def _new(run: Run, asked: set[str]) -> bool:
    return any(word.stem not in asked and not word.function for word in run)


def _choose(question: str, text: str, words: Sequence[Word], runs: Sequence[Run]) -> Run | None:
    """Choose among the runs that say something new, as the question asks."""
    names = [run for run in runs if strong(run)]
    capitals = [run for run in runs if any(word.capital for word in run)]
    place = _PLACE.search(question) is not None
    wider = _WIDER.search(question) is not None
    copula = _first(words, _COPULA, after=_RELATIVE)
    marker = _first(words, _MARKERS)
    orders = [
        [run for run in runs if any(word.number for word in run)]
        if _NUMERIC.search(question)
        else [],
        [run for run in names if run[0].start > marker] if not wider else [],
        [run for run in capitals if _behind(words, run, ("in", "on"))] if place else [],
        capitals if place or _PROPER.search(question) else [],
        [run for run in names if run[0].start < copula],
        [run for run in runs if run[0].start > copula],
        runs,
    ]
    found = next((order[0] for order in orders if order), None)
    if found is not None and wider:
        for run in names:
            if text[found[-1].stop : run[0].start] == ", ":
                found = run
    return found


def _first(
    words: Sequence[Word], wanted: frozenset[str], after: frozenset[str] = frozenset()
) -> int:
    """Where the first of some words stands that does not follow one of others; far off if none."""
    before = ""
    for word in words:
        if word.text.casefold() in wanted and before not in after:
            return word.start
        before = word.text.casefold()
    return 2**31


def _behind(words: Sequence[Word], run: Run, wanted: tuple[str, ...]) -> bool:
    """Whether one of some words stands shortly before a run."""
    at = words.index(run[0])
    return any(word.text in wanted for word in words[max(at - 3, 0) : at])


def _quoted(text: str, start: int, question: str) -> Found | None:
    """Return the first quotation that the question does not hold."""
    for found in _QUOTED.finditer(text, start):
        group = 1 if found[1] else 2
        inside = found[group].rstrip(" ,.;:")
        if inside and inside.casefold() not in question.casefold():
            return found.start(group), found.start(group) + len(inside)
    return None


def exact_question(question: str, subject: str | None = None) -> Found | None:
    """Locate the exact question: the subject, or what stands in for it.

    Where no subject is given, or the question does not hold it: the longest quotation; else the
    longest run of capitals, the first word not counted; else the last `LAST_WORDS` words that
    are no function words, and what stands between them.

    Example:
        >>> text = "who plays zoey in i love you man"
        >>> text[slice(*exact_question(text))]
        'zoey in i love you man'
    """
    at = question.find(subject) if subject else -1
    if subject and at >= 0:
        return at, at + len(subject)
    words = words_of(question)
    quoted = [match.span(1) if match[1] else match.span(2) for match in _QUOTED.finditer(question)]
    names = [run for run in runs_of(question, words[1:]) if run[0].capital]
    spans = quoted or [(run[0].start, run[-1].stop) for run in names]
    if spans:
        return max(spans, key=lambda span: span[1] - span[0])
    last = [word for word in words if not word.function][-LAST_WORDS:]
    return (last[0].start, last[-1].stop) if last else None
