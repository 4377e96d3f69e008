"""Run other libraries' loading code without noise and without leaving a trace in the process."""

import contextlib
import os
import random
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def _log_levels() -> Iterator[None]:
    """Hold the chatter of logs back, then give the loggers back as they were."""
    import logging

    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    from transformers.utils import logging as hf_logging

    verbosity = hf_logging.get_verbosity()
    hf_logging.set_verbosity_error()
    try:
        yield
    finally:
        hf_logging.set_verbosity(verbosity)
        root.handlers[:], root.level = handlers, level


@contextlib.contextmanager
def _no_bars() -> Iterator[None]:
    """Hold the progress bars of transformers and the hub back."""
    from huggingface_hub.utils.tqdm import progress_bar_states
    from transformers.utils import logging as hf_logging

    bars, hub_bars = hf_logging.is_progress_bar_enabled(), dict(progress_bar_states)
    hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        if bars:
            hf_logging.enable_progress_bar()
        progress_bar_states.clear()
        progress_bar_states.update(hub_bars)


@contextlib.contextmanager
def _no_telemetry() -> Iterator[None]:
    """Let the hub's library say of this machine no more than a request needs."""
    from huggingface_hub import constants

    before = constants.HF_HUB_DISABLE_TELEMETRY
    constants.HF_HUB_DISABLE_TELEMETRY = True
    try:
        yield
    finally:
        constants.HF_HUB_DISABLE_TELEMETRY = before


@contextlib.contextmanager
def _torch_state() -> Iterator[None]:
    import torch

    dtype, grad, threads = (
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.get_num_threads(),
    )
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(gpus):
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)
            torch.set_grad_enabled(grad)
            if torch.get_num_threads() != threads:
                torch.set_num_threads(threads)


@contextlib.contextmanager
def _numpy_and_python_rng() -> Iterator[None]:
    import numpy as np

    state, legacy = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(state)
        np.random.set_state(legacy)


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    before = dict(os.environ)
    try:
        yield
    finally:
        if dict(os.environ) != before:
            os.environ.clear()
            os.environ.update(before)


@contextlib.contextmanager
def untouched(*, bars: bool = False) -> Iterator[None]:
    """Undo, on leaving, whatever the body did to the process's global state.

    Covers random generators, default dtype, grad mode, threads, warning filters, environment and
    log levels, also when the body imports transformers or TransformerLens for the first time. What
    importing PyTorch itself sets up stays. The hub is told nothing that it need not know.

    Args:
        bars: Whether transformers and the hub may draw their progress bars.
    """
    import torch  # noqa: F401

    with warnings.catch_warnings(), _environment(), _numpy_and_python_rng(), _no_telemetry():
        warnings.simplefilter("ignore")
        with _log_levels(), _torch_state(), contextlib.nullcontext() if bars else _no_bars():
            yield
