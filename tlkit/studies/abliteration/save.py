"""An edited model as a plain Hugging Face folder, with a card that says what was done to it."""

import json
import shutil
from pathlib import Path
from typing import Any

from tlkit.errors import SpecError
from tlkit.models.bridge import Parts, unbridged
from tlkit.models.info import info
from tlkit.models.streamed import need_memory
from tlkit.results.disk import writing
from tlkit.results.provenance import provenance
from tlkit.studies.abliteration.bake import Baked

CARD = """---
base_model: {model}
library_name: transformers
tags: [abliterated, tlkit]
---

# {model}, with a direction taken out

{what}

**Safety.** Abliteration removes what makes a model decline requests, or weakens it. This model may
answer requests that the original refuses, and its answers have not been checked for harm. It is
meant for the analysis of models by people who may study them; do not put it in front of users.
Removing a direction also changes answers that have nothing to do with refusal.

## How it was made

```json
{attrs}
```
"""


def checked_folder(folder: str | Path, *, overwrite: bool = False) -> Path:
    """A folder that a model may be written to.

    Raises:
        SpecError: Something is there already, or nothing can be made there.
    """
    path = Path(folder).expanduser()
    if path.exists() and not path.is_dir():
        raise SpecError(f"{path} is a file; give the name of a folder.")
    if path.is_dir() and any(path.iterdir()):
        if not overwrite:
            raise SpecError(f"{path} holds something already; give another name, or overwrite.")
        # Replacing a model is meant; deleting whatever else a folder holds is not.
        if not (path / "config.json").is_file():
            raise SpecError(f"{path} holds no model, so it is not overwritten; name another.")
    if not path.parent.is_dir():
        raise SpecError(f"{path}: the folder {path.parent} does not exist; make it first.")
    return path


def save(edited: Any, folder: str | Path, *, result: Any = None, overwrite: bool = False) -> Path:
    """Write a model as transformers reads it: safetensors, config, tokenizer and a model card.

    Args:
        edited: What `bake` gave, or any loaded model.
        folder: Where; it must be new or empty.
        result: The Dataset that `run` gave; what it measured goes into the card.
        overwrite: Whether a model folder that is there is replaced.

    Returns:
        The folder.

    Raises:
        SpecError: The folder may not be written to, or what `bake` did was undone.
    """
    model = edited.model if isinstance(edited, Baked) else edited
    need_memory(model, "save", "copy its folder instead")
    path = checked_folder(folder, overwrite=overwrite)
    if _replaced(path).is_dir() and not path.exists():
        _replaced(path).rename(path)  # a save that was killed between its two renames
    if isinstance(edited, Baked) and not edited.tensors_in_place:
        raise SpecError("This edit was undone; bake again, and save before undo().")
    card = _card(edited, model, result)
    # Whole or not at all: what is there stays until the new folder is complete.
    partial = path.with_name(path.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        with writing(path), unbridged(model, Parts(model).swaps) as hf:
            saved: Any = hf
            saved.save_pretrained(partial)
        if model.tokenizer is not None:
            model.tokenizer.save_pretrained(partial)
        (partial / "README.md").write_text(card, encoding="utf-8")
        _take_place(partial, path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return path


def _take_place(partial: Path, path: Path) -> None:
    """Put a whole folder where another may be, which is away only until the new one is there."""
    old = _replaced(path)
    shutil.rmtree(old, ignore_errors=True)
    if path.is_dir():
        path.rename(old)
    partial.rename(path)
    shutil.rmtree(old, ignore_errors=True)


def _replaced(path: Path) -> Path:
    """Where a folder lies for the moment in which another one takes its place."""
    return path.with_name(path.name + ".replaced")


def _card(edited: Any, model: Any, result: Any) -> str:
    about: dict[str, Any] = dict(provenance(model, study="abliteration"))
    what = "The weights of a model that tlkit had loaded."
    if isinstance(edited, Baked):
        kind = "approximately (a norm stands behind the matrices)" if edited.approximate else ""
        what = (
            f"A direction of rank {edited.direction.rank} ({edited.direction.method}) was taken "
            f"out of {edited.tensors} tensors that write to the residual stream {kind}".rstrip()
            + f"; the logits differ from those under hooks by at most {edited.difference:.2g}."
        )
        site = edited.direction.site
        about |= {
            "site": "" if site is None else str(site), "method": edited.direction.method,
            "strengths": edited.strengths, "bake_difference": edited.difference,
        }  # fmt: skip
    if result is not None:
        what += f" Choice: {result.attrs['choice']}."
        rates = result["refusal_rate"]
        about["original_weight_hash"] = result.attrs["weight_hash"]
        about |= {
            f"refusal_rate {name}": {
                str(one): float(rates.sel(model=name, detector=one))
                for one in rates["detector"].values
            }
            for name in ("original", "abliterated")
        }
    return CARD.format(
        model=info(model).source, what=what, attrs=json.dumps(about, indent=1, ensure_ascii=False)
    )
