"""Known data sets of the hub as plain rows: where they are, and what their columns mean."""

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from tlkit.errors import SpecError

Row = Mapping[str, Any]
Kind = Literal["questions", "problems", "documents", "labelled"]

_BUILDERS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet"}


@dataclass(frozen=True)
class Recipe:
    """A data set of the hub.

    Attributes:
        kind: What its rows become.
        source: Its hub id.
        config: Its configuration, if it has several.
        split: The split that is read.
        convert: From one of its rows to one of ours.
        needs: Columns that `convert` reads.
    """

    kind: Kind
    source: str
    config: str | None
    split: str
    convert: Callable[[Row], dict[str, Any]]
    needs: tuple[str, ...]


def _popqa(row: Row) -> dict[str, Any]:
    names = row["possible_answers"]
    names = json.loads(names) if isinstance(names, str) else list(names)
    return {
        "question": row["question"],
        "answer": row["obj"],
        "answer_aliases": names,
        "subject": row["subj"],
        "relation": row["prop"],
        "popularity": row["s_pop"],
    }


def _triviaqa(row: Row) -> dict[str, Any]:
    answer = row["answer"]
    return {
        "question": row["question"],
        "answer": answer["value"],
        "answer_aliases": list(answer["aliases"]),
    }


def _hotpotqa(row: Row) -> dict[str, Any]:
    return {"question": row["question"], "answer": row["answer"], "relation": row["type"]}


def _nq_open(row: Row) -> dict[str, Any]:
    return {"question": row["question"], "answer": list(row["answer"])}


def _gsm8k(row: Row) -> dict[str, Any]:
    solution, _, answer = row["answer"].rpartition("####")
    return {
        "problem": row["question"],
        "solution": re.sub(r"<<.*?>>", "", solution).strip(),
        "answer": answer.strip().replace(",", ""),
    }


def _math(row: Row) -> dict[str, Any]:
    return {
        "problem": row["problem"],
        "solution": row["solution"],
        "answer": row["answer"],
        "topic": row["subject"],
        "level": int(row["level"]),
    }


def _longbench(row: Row) -> dict[str, Any]:
    return {
        "id": row["_id"],
        "text": row["context"],
        "question": row["input"],
        "answers": list(row["answers"]),
        "task": row["dataset"],
        "language": row["language"],
    }


def _jailbreak(row: Row) -> dict[str, Any]:
    return {"prompt": row["prompt"], "label": row["type"]}


RECIPES: dict[str, Recipe] = {
    "popqa": Recipe(
        "questions", "akariasai/PopQA", None, "test", _popqa,
        ("question", "obj", "possible_answers", "subj", "prop", "s_pop"),
    ),
    "triviaqa": Recipe(
        "questions", "mandarjoshi/trivia_qa", "unfiltered.nocontext", "validation", _triviaqa,
        ("question", "answer"),
    ),
    "hotpotqa": Recipe(
        "questions", "hotpotqa/hotpot_qa", "distractor", "validation", _hotpotqa,
        ("question", "answer", "type"),
    ),
    "nq_open": Recipe(
        "questions", "google-research-datasets/nq_open", None, "validation", _nq_open,
        ("question", "answer"),
    ),
    "gsm8k": Recipe(
        "problems", "openai/gsm8k", "main", "test", _gsm8k, ("question", "answer"),
    ),
    "math-500": Recipe(
        "problems", "HuggingFaceH4/MATH-500", None, "test", _math,
        ("problem", "solution", "answer", "subject", "level"),
    ),
    "longbench": Recipe(
        "documents", "THUDM/LongBench", "narrativeqa", "test", _longbench,
        ("_id", "context", "input", "answers", "dataset", "language"),
    ),
    "jailbreak-classification": Recipe(
        "labelled", "jackhhao/jailbreak-classification", None, "test", _jailbreak,
        ("prompt", "type"),
    ),
}  # fmt: skip


def hub_rows(
    name: str,
    kind: Kind,
    source: str | PathLike[str] | None = None,
    *,
    config: str | None = None,
    split: str | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield a data set's rows, converted.

    Args:
        name: A name of `RECIPES`.
        kind: What rows are wanted.
        source: Another hub id, or a local file with the same columns.
        config: Another configuration, such as one of LongBench's tasks.
        split: Another split.

    Raises:
        SpecError: The name is unknown, the `datasets` library is missing, the data set is out of
            reach, or it has other columns.
    """
    recipe = RECIPES.get(name)
    if recipe is None or recipe.kind != kind:
        known = ", ".join(n for n, r in RECIPES.items() if r.kind == kind)
        raise SpecError(f"There is no data set {name!r} of {kind} here; there are {known}.")
    rows = iter(_load(recipe, name, source, config, split))
    first = next(rows, None)
    if first is None:
        raise SpecError(f"The data set {name!r} is empty.")
    missing = [column for column in recipe.needs if column not in first]
    if missing:
        raise SpecError(
            f"The data set {name!r} has no column {missing[0]!r}; it has {', '.join(first)}."
        )
    return map(recipe.convert, itertools.chain([first], rows))


def _load(
    recipe: Recipe,
    name: str,
    source: str | PathLike[str] | None,
    config: str | None,
    split: str | None,
) -> Iterable[Row]:
    """Open a data set by the `datasets` library."""
    try:
        import datasets
    except ImportError:
        raise SpecError(
            "Data sets of the hub need the datasets library; get it with: pip install tlkit[hub]"
        ) from None
    path = Path(source) if source is not None else None
    if path is not None and path.suffix in _BUILDERS:
        if not path.is_file():
            raise SpecError(f"There is no file {path}.")
        where: dict[str, Any] = {
            "path": _BUILDERS[path.suffix],
            "data_files": str(path),
            "split": "train",
        }
    else:
        where = {
            "path": str(source or recipe.source),
            "name": config or recipe.config,
            "split": split or recipe.split,
        }
    try:
        return datasets.load_dataset(**where)  # nosec B615: rows alone; no code of theirs is run
    except Exception as error:  # the library raises whatever the network or the hub gave it
        said = " ".join(str(error).split())[:200]
        raise SpecError(
            f"The data set {name!r} cannot be loaded from {where['path']} "
            f"({type(error).__name__}: {said}); give source=FILE for a local copy."
        ) from error
