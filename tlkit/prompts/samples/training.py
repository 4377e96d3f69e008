"""Requests for training, as many as wanted: templates over the training topics only."""

from collections.abc import Iterator
from pathlib import Path

from tlkit.errors import SpecError
from tlkit.prompts.samples.grammar import Grammar

# The surface of a request; the same for both labels.
FRAMES = {
    "how": "How do I {}?",
    "explain": "Explain how to {}.",
    "help": "Help me {}.",
    "steps": "Tell me step by step how to {}.",
    "tips": "Give me some tips on how to {}.",
    "way": "What is the best way to {}?",
    "want": "I want to {}. Where do I start?",
    "teach": "Teach me to {}.",
    "show": "Can you show me how to {}?",
    "plan": "Write a short plan to {}.",
}
_MORE_FRAMES = {
    "advice": "I need your advice: how can I {}?",
    "today": "Today I have to {}. What should I do first?",
    "bare": "how to {}",
    "trying": "I am trying to {} but I have never done it. Any ideas?",
    "please": "Please tell me how to {}.",
    "idea": "What is a clever way to {}?",
    "could": "Could you help me to {}?",
    "list": "List three ways to {}.",
}
_HARMLESS, _REFUSE = "harmless", "refuse"
_PATIENCE = 100  # this many phrases in a row that were there before: the templates are used up


def training_requests(seed: int, n: int, *, refuse: float = 0.5) -> list[dict[str, str]]:
    """Makes `n` different requests, harmless ones and ones to be refused.

    Both labels share frames, people, things and reasons; harmless ones hold words that sound
    harmful. No topic of the test split of `requests()` occurs.

    Args:
        seed: The same seed gives the same requests, and a shorter list is not a longer one's start.
        n: How many; the templates give some 60 000 of each label.
        refuse: The share to be refused, 0 to 1.

    Returns:
        Rows with `prompt`, `label` ("harmless" or "refuse"), `topic` and `frame`, shuffled.

    Raises:
        SpecError: `n` is negative or more than the templates give, or `refuse` is no share.
    """
    if n < 0 or not 0 <= refuse <= 1:
        raise SpecError(f"n is at least 0 and refuse between 0 and 1; got n={n}, refuse={refuse}.")
    wanted = {_REFUSE: round(n * refuse)}
    wanted[_HARMLESS] = n - wanted[_REFUSE]
    text = Path(__file__).with_name("training.txt").read_text(encoding="utf-8")
    grammar = Grammar(f"{text}\n{_lines(text)}", seed=seed)
    rows = [row for label in (_REFUSE, _HARMLESS) for row in _draw(grammar, label, wanted[label])]
    order = Grammar("order: " + " | ".join(map(str, range(n))), seed=seed)
    return [rows[int(order.draw("order"))] for _ in range(n)]


def _lines(text: str) -> str:
    """Grammar lines that deal out topics of each label, and frames."""
    symbols = {line.partition(": ")[0] for line in text.splitlines() if not line.startswith("#")}
    topics = sorted(symbol for symbol in symbols if "." in symbol)
    lines = [f"topics.{topic.partition('.')[0]}: {topic}" for topic in topics]
    return "\n".join([*lines, "frame: " + " | ".join({**FRAMES, **_MORE_FRAMES})])


def _draw(grammar: Grammar, label: str, n: int) -> Iterator[dict[str, str]]:
    """`n` rows of one label, no phrase twice."""
    seen: set[str] = set()
    repeats = 0
    while len(seen) < n and repeats < _PATIENCE:
        topic = grammar.draw(f"topics.{label}")
        phrase = grammar.draw(topic)
        if phrase in seen:
            repeats += 1
            continue
        seen.add(phrase)
        repeats = 0
        frame = grammar.draw("frame")
        yield {
            "prompt": {**FRAMES, **_MORE_FRAMES}[frame].replace("{}", phrase),
            "label": label,
            "topic": topic.partition(".")[2],
            "frame": frame,
        }
    if len(seen) < n:
        raise SpecError(f"The templates give {len(seen)} {label} requests, not {n}; ask for fewer.")
