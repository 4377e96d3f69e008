"""The token sequences of a run, and how positions of two runs correspond."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tlkit.errors import SpecError


@dataclass(frozen=True, eq=False)
class Sequences:
    """Token ids per run and example, with the answer appended where a metric reads all of it.

    Args:
        prompts: What the user gave.
        base: The run that is edited, ``"clean"`` or ``"corrupted"``.
        forced: Whether all but the answer's last token follow the prompt (teacher forcing).
    """

    prompts: Any
    base: str
    forced: bool = False

    @cached_property
    def runs(self) -> dict[str, list[list[int]]]:
        """Ids of each run that the prompts have."""
        return {
            run: [[*ids, *self.tail(i)] for i, ids in enumerate(getattr(self.prompts, run))]
            for run in ("clean", "corrupted")
            if getattr(self.prompts, run) is not None
        }

    def tail(self, example: int) -> tuple[int, ...]:
        """What is appended to the prompt."""
        return tuple(self.prompts.answers[example][:-1]) if self.forced else ()

    def prompt_length(self, run: str, example: int) -> int:
        """Tokens of the prompt alone."""
        return len(getattr(self.prompts, run)[example])

    def length(self, run: str, example: int) -> int:
        """Tokens of prompt and what is appended."""
        return self.prompt_length(run, example) + len(self.tail(example))

    def answer_length(self, example: int) -> int:
        """Tokens of the answer, 0 if there is none."""
        answers = self.prompts.answers
        return 0 if answers is None else len(answers[example])

    def spans(self, run: str) -> Mapping[str, Any]:
        """Named spans in the given run's token positions."""
        return self.prompts.spans if run == "clean" else self.prompts.corrupted_spans

    def source_position(self, source: str, example: int, position: int) -> int:
        """Where a base position lies in another run; -1 if nothing corresponds."""
        if source == self.base:
            return position
        behind = position - self.prompt_length(self.base, example)
        if behind >= 0:
            return self.prompt_length(source, example) + behind
        return self._maps[example].get(position, -1)

    @cached_property
    def _maps(self) -> list[dict[int, int]]:
        """Base position to the other run's position, per example."""
        if self.prompts.alignment is None:
            return [{} for _ in range(len(self.prompts))]
        to_clean = [{i: j for i, j in enumerate(row) if j >= 0} for row in self.prompts.alignment]
        if self.base == "corrupted":
            return to_clean
        return [{j: i for i, j in row.items()} for row in to_clean]

    @cached_property
    def first_difference(self) -> list[int]:
        """Per example, how many leading tokens are equal and aligned in both runs."""
        if len(self.runs) < 2:
            return [len(ids) for ids in self.runs[self.base]]
        other = "clean" if self.base == "corrupted" else "corrupted"
        found = []
        for i, ids in enumerate(self.runs[self.base]):
            p = 0
            while p < len(ids) and self.same_token(other, i, p):
                p += 1
            found.append(p)
        return found

    def same_token(self, source: str, example: int, position: int) -> bool:
        """Whether the same token stands at the same place in both runs."""
        there = self.source_position(source, example, position)
        ids = self.runs[source][example]
        here = self.runs[self.base][example][position]
        return there == position and there < len(ids) and ids[there] == here

    def require(self, run: str) -> None:
        """Refuse a run that these prompts do not have.

        Raises:
            SpecError: The prompts have no such run.
        """
        if run not in self.runs:
            raise SpecError(
                f"A patch wants the {run!r} run, but these prompts have only "
                f"{', '.join(self.runs)}: make them with Prompts.from_pairs."
            )
