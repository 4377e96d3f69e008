"""What was found and what was not, as a study noted it."""

import json
from collections.abc import Iterator
from typing import Any


def of_sets(ds: Any) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Each model's name (empty for one alone), each set's name, and what was noted of it."""
    notes = json.loads(ds.attrs.get("notes", "{}"))
    for model, sets in notes.items() if "models" in ds.attrs else [("", notes)]:
        for name, note in sets.items():
            yield model, name, note


def reasons(ds: Any) -> list[str]:
    """Why numbers are missing, one sentence each, the (model and) set of questions first."""
    return [
        f"{', '.join(part for part in (model, name) if part)}: {reason}"
        for model, name, note in of_sets(ds)
        for reason in note["reasons"]
    ]


def counts(ds: Any) -> Any:
    """What was found and what was not, per (model and) set of questions.

    Returns:
        A pandas DataFrame, one row per set.
    """
    import pandas as pd

    return pd.DataFrame([
        {**({"model": model} if model else {}), "dataset": name, **note["counts"]}
        for model, name, note in of_sets(ds)
    ])  # fmt: skip


def share_right(ds: Any) -> Any:
    """The share of right answers per (model,) set and relation.

    Returns:
        A pandas DataFrame: dataset, relation, right, wrong, unknown, share.
    """
    import pandas as pd

    rows = []
    for model, name, _ in of_sets(ds):
        one = ds.sel(dataset=name) if not model else ds.sel(dataset=name, model=model)
        there = one["question"].values != ""
        relations, verdicts = one["relation"].values[there], one["verdict"].values[there]
        for relation in sorted(set(relations.tolist())):
            said = verdicts[relations == relation]
            kinds = {
                verdict: int((said == verdict).sum()) for verdict in ("right", "wrong", "unknown")
            }
            rows.append({
                **({"model": model} if model else {}), "dataset": name, "relation": relation,
                **kinds, "share": kinds["right"] / len(said),
            })  # fmt: skip
    return pd.DataFrame(rows)
