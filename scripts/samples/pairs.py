"""Make pairs.jsonl: clean and corrupted prompts of equal token length, by kind.

Each kind has a frame and a hand-written table; the corrupted prompt is the same frame with the one
word (or year, or line order) changed that decides the answer. The tables hold only what the
embedded model was measured to get right; what it got wrong was taken out (see docs/samples.md).
"""

from collections.abc import Iterator
from itertools import count

from tables import AGREEMENT, ANTONYMS, CODE, FACTS, INDUCTION, IOI, PRONOUNS, SPANS

Row = dict[str, object]


def pair(kind: str, frame: str, words: tuple[str, str], answers: tuple[str, str]) -> Row:
    """One row: the frame with each of two words, and the answers that belong to them."""
    clean, corrupted = (frame.replace("{}", word) for word in words)
    answer, wrong = (" " + text if not text.isdigit() else text for text in answers)
    return {
        "kind": kind,
        "clean": clean,
        "corrupted": corrupted,
        "answer": answer,
        "wrong_answer": wrong,
    }


def subjects(kind: str, frame: str, words: tuple[str, str], answers: tuple[str, str]) -> Row:
    """A pair whose changed word is its subject, with its character span in either prompt."""
    row = pair(kind, frame, words, answers)
    start = frame.index("{}")
    row |= {"subject": words[0], "subject_span": [start, start + len(words[0])]}
    row |= {"corrupted_subject": words[1], "corrupted_subject_span": [start, start + len(words[1])]}
    return row


def ioi() -> Iterator[Row]:
    """Who is given the thing: the name said once. Corrupted: the other name is said twice."""
    for first, second, frame in IOI:
        text = frame.replace("{A}", first).replace("{B}", second)
        yield subjects("ioi", text, (second, first), (first, second))


def agreement() -> Iterator[Row]:
    """A verb agrees with the head noun, not with the nearer attractor."""
    for frame, plural, singular, verbs in AGREEMENT:
        yield subjects("agreement", frame, (plural, singular), verbs)


def facts() -> Iterator[Row]:
    """A fact of one subject against the same fact of another."""
    for frame, rows in FACTS:
        for one, other, answer, wrong in rows:
            yield subjects("facts", frame, (one, other), (answer, wrong))


def greater_than() -> Iterator[Row]:
    """A span of years ends after it begins: next digit above the decade, not below."""
    for thing, century, late, early, answer, wrong in SPANS:
        frame = f"The {thing} lasted from the year {century}{{}} to the year {century}"
        yield pair("greater_than", frame, (late, early), (answer, wrong))


def pronouns() -> Iterator[Row]:
    """A pronoun takes the gender of the only person named."""
    for frame, one, other, answers in PRONOUNS:
        yield subjects("pronoun", frame, (one, other), answers)


def induction() -> Iterator[Row]:
    """A list of unrelated words begins again: the next word is the one that came next before."""
    for words, other in INDUCTION:
        listed = words.split()
        frame = " ".join([*listed[:-1], "{}", *listed[:-1]])
        yield pair("induction", frame, (listed[-1], other), (listed[-1], other))


def antonyms() -> Iterator[Row]:
    """Two examples set the task, the third word asks for its opposite."""
    for *solved, clean, corrupted in ANTONYMS:
        shown = " ".join("The opposite of {} is {}.".format(*two.split()) for two in solved)
        (word, answer), (other, wrong) = clean.split(), corrupted.split()
        frame = f"{shown} The opposite of {{}} is"
        yield subjects("antonym", frame, (word, other), (answer, wrong))


def code() -> Iterator[Row]:
    """A comment names the arguments in the order of the signature."""
    for name, arguments, other in CODE:
        listed = arguments.split()
        signature = ", ".join([*listed[:-1], "{}"])
        lines = "".join(f"    :param {word}: the {word}\n" for word in listed[:-1])
        frame = f'def {name}({signature}):\n    """\n{lines}    :param'
        yield pair("docstring", frame, (listed[-1], other), (listed[-1], other))


def pairs() -> list[Row]:
    """All pairs, kind after kind, numbered within their kind."""
    kinds = (ioi, facts, agreement, greater_than, pronouns, induction, antonyms, code)
    rows = []
    for kind in kinds:
        numbers = count(1)
        rows += [{"id": f"{row['kind']}-{next(numbers):02d}", **row} for row in kind()]
    return rows
