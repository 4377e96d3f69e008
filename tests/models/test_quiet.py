"""Loading leaves the process as it was, says nothing, and stays off the network."""

import os
import random
import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pytest
import torch

from tlkit.models.load import HookedTransformer
from tlkit.models.quiet import untouched
from tlkit.models.tiny import tiny


def state():
    import logging

    from huggingface_hub.utils.tqdm import progress_bar_states
    from transformers.utils import logging as hf

    return {
        "torch": torch.get_rng_state().tolist(),
        "numpy": repr(np.random.get_state()),
        "python": random.getstate(),
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "grad": torch.is_grad_enabled(),
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "warnings": list(warnings.filters),
        "environment": dict(os.environ),
        "verbosity": hf.get_verbosity(),
        "bars": (hf.is_progress_bar_enabled(), dict(progress_bar_states)),
        "root": (logging.getLogger().level, list(logging.getLogger().handlers)),
        "transformers": logging.getLogger("transformers").level,
    }


@pytest.mark.parametrize("source", ["tiny:gptj", "folder", "gguf", "embedded"])
def test_nothing_global_changes(source, make_folder, write_gguf, tmp_path, request):
    if source == "folder":
        source = make_folder("llama")
    elif source == "gguf":
        source = write_gguf(tiny("qwen2"), tmp_path / "x.gguf", "qwen2")
    elif source == "embedded":
        request.getfixturevalue("embedded")
        source = "smollm2-135m-instruct"
    before = state()
    HookedTransformer.from_pretrained(source, device="cpu")
    assert state() == before


def test_nothing_global_changes_when_loading_fails(tmp_path):
    before = state()
    with pytest.raises(ValueError, match=r"config\.json"):
        HookedTransformer.from_pretrained(tmp_path)
    assert state() == before


def test_whatever_the_body_does_is_undone():
    before = state()
    with untouched():
        random.random()
        np.random.rand()
        torch.rand(1)
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        warnings.filterwarnings("error")
        os.environ["TLKIT_TEST"] = "1"
    assert state() == before


def test_a_users_settings_are_kept_and_not_reset_to_the_usual(make_folder):
    folder = make_folder("llama")
    with torch.no_grad():
        HookedTransformer.from_pretrained(folder)
        assert not torch.is_grad_enabled()
    torch.set_default_dtype(torch.float64)
    try:
        model = HookedTransformer.from_pretrained(folder)
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}


FIRST_LOAD = """
    import os, socket, sys, warnings
    import torch
    def refuse(*_, **__):
        raise AssertionError("the network was asked")
    for name in ("connect", "connect_ex", "sendto"):
        setattr(socket.socket, name, refuse)
    socket.getaddrinfo = socket.create_connection = refuse
    filters, environment = list(warnings.filters), dict(os.environ)
    from tlkit.models.load import HookedTransformer
    for source in sys.argv[1:]:
        model = HookedTransformer.from_pretrained(source, device="cpu")
        with torch.no_grad():
            model(model.to_tokens("Mary"))
        assert warnings.filters == filters, source
        assert dict(os.environ) == environment, source
"""


@pytest.mark.slow
def test_the_first_load_of_a_process_is_silent_and_asks_no_network(
    embedded, make_folder, write_gguf, tmp_path
):
    sources = [
        "tiny:mistral",
        make_folder("llama"),
        write_gguf(tiny("qwen2"), tmp_path / "x.gguf", "qwen2"),
        "smollm2-135m-instruct",
    ]
    environment = {name: v for name, v in os.environ.items() if not name.startswith("HF_")}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FIRST_LOAD), *map(str, sources)],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment | {"PYTHONPATH": "."},
    )
    assert done.returncode == 0, done.stderr
    assert (done.stdout, done.stderr) == ("", "")
