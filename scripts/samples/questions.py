"""Make questions.jsonl from the hand-written tables in facts/, one table a relation.

A table holds template lines, `? first / second`, each valid for the fact lines below it, and fact
lines, `subject | answer | alias | …`. Square brackets mark the subject where it is not the whole
phrase: `the [telephone]`. Templates take turns, so that a relation is not one wording.
"""

from pathlib import Path

FACTS = Path(__file__).parent / "facts"


def row(name: str, phrase: str, answers: list[str], template: str) -> dict[str, object]:
    """One question, with the character span of its subject."""
    before, bracket, rest = phrase.partition("[")
    subject = rest.partition("]")[0] if bracket else phrase
    question = template.replace("{}", phrase.replace("[", "").replace("]", ""))
    start = template.index("{}") + (len(before) if bracket else 0)
    return {
        "id": name,
        "question": question,
        "answer": answers[0],
        "answer_aliases": answers,
        "subject": subject,
        "subject_span": [start, start + len(subject)],
        "relation": name.rpartition("-")[0],
    }


def table(path: Path) -> list[dict[str, object]]:
    """The questions of one relation."""
    rows, templates = [], []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("? "):
            templates = line[2:].split(" / ")
            continue
        phrase, *answers = line.split(" | ")
        number = len(rows) + 1
        template = templates[number % len(templates)]
        rows.append(row(f"{path.stem}-{number:02d}", phrase, answers, template))
    return rows


def questions() -> list[dict[str, object]]:
    """All questions, relation after relation."""
    return [row for path in sorted(FACTS.glob("*.txt")) for row in table(path)]
