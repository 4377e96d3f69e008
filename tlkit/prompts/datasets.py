"""Word problems, long documents and labelled prompts from the hub, as plain rows."""

import itertools
from os import PathLike
from typing import Any

from tlkit.prompts.hub import hub_rows

Source = str | PathLike[str] | None


def problems(name: str, n: int | None = None, *, source: Source = None) -> list[dict[str, Any]]:
    """Get word problems with numeric or symbolic answers.

    Args:
        name: ``"gsm8k"`` or ``"math-500"``.
        n: Only the first `n`.
        source: Another hub id, or a local file with the hub's columns.

    Returns:
        Rows with ``problem``, ``solution`` and ``answer``; GSM8K's answers are numbers without
        commas, its solutions without calculator marks.

    Raises:
        SpecError: The data set cannot be loaded.
    """
    return list(itertools.islice(hub_rows(name, "problems", source), n))


def documents(
    name: str = "longbench", n: int | None = None, *, task: str = "narrativeqa",
    source: Source = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """Get long documents.

    Args:
        name: ``"longbench"``.
        n: Only the first `n`.
        task: Which of LongBench's tasks.
        source: Another hub id, or a local file with the hub's columns.

    Returns:
        Rows with ``id``, ``text``, ``question``, ``answers``, ``task`` and ``language``.

    Raises:
        SpecError: The data set cannot be loaded.
    """
    return list(itertools.islice(hub_rows(name, "documents", source, config=task), n))


def labelled(
    name: str = "jailbreak-classification", n: int | None = None, *, split: str = "test",
    source: Source = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """Get prompts with labels.

    Args:
        name: ``"jailbreak-classification"`` (labels benign and jailbreak).
        n: Only the first `n`.
        split: ``"train"`` or ``"test"``.
        source: Another hub id, or a local file with the hub's columns.

    Returns:
        Rows with ``prompt`` and ``label``.

    Raises:
        SpecError: The data set cannot be loaded.
    """
    return list(itertools.islice(hub_rows(name, "labelled", source, split=split), n))
