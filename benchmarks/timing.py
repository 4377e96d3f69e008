"""Alternating timed runs, and what was run on."""

import ctypes
import gc
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


def alternating(runs: dict[str, Callable[[], Any]], repeats: int = 3) -> dict[str, dict[str, Any]]:
    """Each function's seconds (median, all) and its last return value, taken in turns.

    The first turn warms up and is not counted.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    last: dict[str, Any] = {}
    for turn in range(repeats + 1):
        for name, function in runs.items():
            started = time.perf_counter()
            last[name] = function()
            if turn:
                seconds[name].append(time.perf_counter() - started)
    return {
        name: {"seconds": statistics.median(times), "all": times, "value": last[name]}
        for name, times in seconds.items()
    }


def machine() -> dict[str, Any]:
    """The machine and the versions that figures belong to."""
    from importlib.metadata import version

    packages = ("torch", "transformers", "transformer-lens", "numpy")
    return {
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }


def peak_growth(function):
    """MiB by which the process's peak rises above what it holds now (Linux)."""
    gc.collect()
    # What earlier runs freed and the allocator kept would hide a growth.
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    function()
    return (_status("VmHWM") - before) / 1024


def _status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def say(results: Any) -> None:
    """Print JSON on stdout."""
    json.dump(results, sys.stdout, indent=2, default=float)
    sys.stdout.write("\n")
