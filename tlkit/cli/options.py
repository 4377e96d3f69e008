"""The options that commands share, and the checks that need no model."""

import importlib.util
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from tlkit.errors import SpecError

Dtype = Literal["float32", "bfloat16", "float16"]
Engine = Literal["packed", "reference", "gradient", "verified"]

ModelOption = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="SOURCE",
        help="A hub id, a folder, a .gguf file, or smollm2-135m-instruct (embedded).",
    ),
]
OutOption = Annotated[
    Path | None, typer.Option("--out", metavar="PATH", help="Where the result goes.")
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="For everything drawn at random.")]
DtypeOption = Annotated[
    Dtype | None, typer.Option("--dtype", help="Of the weights; the model's own if not given.")
]
DeviceOption = Annotated[
    str | None, typer.Option("--device", metavar="NAME", help="cpu, cuda, cuda:1, mps …")
]
StreamOption = Annotated[
    bool,
    typer.Option(
        "--stream",
        help="Leave the weights in their safetensors files, one block in memory at a time.",
    ),
]
PlanOption = Annotated[bool, typer.Option("--plan", help="Say what it would cost, and stop.")]
JsonOption = Annotated[
    bool, typer.Option("--json", help="One JSON object on stdout, everything else on stderr.")
]
EngineOption = Annotated[
    Engine,
    typer.Option(
        "--engine",
        help="packed is fast; reference runs one forward per cell; gradient estimates; verified "
        "runs the largest estimates and a sample.",
    ),
]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Go on with the unfinished run that --out holds.")
]
OverwriteOption = Annotated[
    bool, typer.Option("--overwrite", help="Replace what --out holds, if anything.")
]
ExecutorOption = Annotated[
    Literal["ray"] | None,
    typer.Option(
        "--executor", help="Who runs it, if not this process: ray, whose cluster RAY_ADDRESS names."
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        "--workers", min=1, help="Of --executor ray; one per GPU, or per machine, if not given."
    ),
]
FieldsOption = Annotated[
    str | None,
    typer.Option(
        "--fields", metavar="NAME=COLUMN,…", help="What the input file calls its columns."
    ),
]


def check_device(name: str | None) -> str | None:
    """`name` if it reads like a device; whether the machine has it shows when the model loads."""
    if name is None or re.fullmatch(r"cpu|mps|(cuda|xpu)(:\d+)?", name):
        return name
    raise SpecError(
        f"--device {name} is not a device: give cpu, mps, cuda, or a number with it as in cuda:1."
    )


def check_out(
    path: Path, suffixes: Sequence[str], *, resume: bool = False, overwrite: bool = False
) -> Path:
    """`path` if a result can be written there.

    Args:
        path: what ``--out`` said.
        suffixes: the endings that the command knows how to write.
        resume: the path must be a store that an unfinished run left; only a ``.zarr`` can be.
        overwrite: an existing result may be replaced.
    """
    if path.suffix not in suffixes:
        raise SpecError(f"--out {path}: its name must end in {' or '.join(suffixes)}.")
    if resume:
        return _check_store(path)
    if journal_of(path).exists() and not overwrite:
        raise SpecError(f"--out {path} has an unfinished run: give --resume or --overwrite.")
    if path.exists() and not overwrite:
        ways = "--overwrite" if path.suffix != ".zarr" else "--resume or --overwrite"
        raise SpecError(f"--out {path} exists already: give another name, or {ways}.")
    if path.is_dir() and path.suffix != ".zarr":
        raise SpecError(f"--out {path} is a folder: give the name of a file.")
    folder = path.parent
    if not folder.is_dir():
        raise SpecError(f"--out {path}: the folder {folder} does not exist: make it first.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise SpecError(f"--out {path}: the folder {folder} cannot be written to.")
    return path


def _check_store(path: Path) -> Path:
    if path.suffix != ".zarr":
        raise SpecError(f"--resume continues a .zarr store and --out is {path}.")
    if not path.is_dir() and not journal_of(path).exists():
        raise SpecError(f"--resume: there is no store at {path}: leave --resume out to begin one.")
    return path


def journal_of(store: Path) -> Path:
    """Where an unfinished run keeps what it has done."""
    return store.with_name(store.name + ".journal")


def check_executor(executor: str | None, workers: int | None, engine: str) -> None:
    """Refuse what workers cannot do, and an executor that is not installed."""
    if executor is None:
        if workers is not None:
            raise SpecError("--workers says how many --executor ray has; give that, too.")
        return
    if engine not in ("packed", "reference"):
        raise SpecError(f"--executor spreads --engine packed and reference, not {engine}.")
    if importlib.util.find_spec("ray") is None:
        raise SpecError("Ray is not installed: python -m pip install 'tlkit[ray]'.")


def check_share(option: str, value: float) -> float:
    """`value` if it is a share."""
    if 0 <= value <= 1:
        return value
    raise SpecError(f"{option} is a share between 0 and 1, not {value}.")


def only_one(**given: bool) -> None:
    """Refuse options that contradict each other."""
    chosen = [f"--{name}" for name, on in given.items() if on]
    if len(chosen) > 1:
        raise SpecError(f"{' and '.join(chosen)} contradict each other: give one of them.")
