"""A model larger than the memory that it may take: streamed under a limit, beside in memory.

    python benchmarks/stream.py                  # 1.9 GB of fp32 weights, a limit of 480 MB
    python benchmarks/stream.py --small          # a tenth of it, to see that it works

Weights of a random Llama are written as sharded safetensors. Two processes then run the same sweep
of the residual stream on two pairs: one without a limit, all weights in memory; one with
stream=True under RLIMIT_DATA, which is set once the libraries are loaded, to what the process
takes then and the limit on top. Each is told its peaks above that baseline. The disk's cache is
warm: the files were just written.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from timing import machine, say

import tlkit as tk

FULL = {
    "vocab_size": 32000, "hidden_size": 1024, "intermediate_size": 4096,
    "num_hidden_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 16,
}  # fmt: skip
SMALL = {
    "vocab_size": 8000, "hidden_size": 512, "intermediate_size": 2048,
    "num_hidden_layers": 20, "num_attention_heads": 8, "num_key_value_heads": 8,
}  # fmt: skip
LIMIT = {False: 480 * 10**6, True: 110 * 10**6}
BUDGET = {False: 128 * 10**6, True: 16 * 10**6}
LENGTH, FIRST, PAIRS = 12, 2, 2


def write_model(folder: Path, shapes: dict[str, int]) -> int:
    """Write a random model, a shard for each layer, and return its bytes."""
    from safetensors.torch import save_file
    from transformers import LlamaConfig

    from tlkit.models.memory import on_meta
    from tlkit.models.tiny import tiny_tokenizer

    config = LlamaConfig(**shapes, bos_token_id=0, eos_token_id=1, pad_token_id=2)
    generator = torch.Generator().manual_seed(0)
    shards: dict[str, dict[str, torch.Size]] = {}
    for name, weight in on_meta(config).named_parameters():
        layer = name.split(".")[2] if ".layers." in name else name.split(".")[-2]
        shards.setdefault(f"model-{layer}.safetensors", {})[name] = weight.shape
    where, total = {}, 0
    for file, weights in shards.items():
        drawn = {
            name: torch.randn(shape, generator=generator) * 0.02 if len(shape) > 1
            else torch.ones(shape)
            for name, shape in weights.items()
        }  # fmt: skip
        save_file(drawn, folder / file, metadata={"format": "pt"})
        total += sum(one.numel() * one.itemsize for one in drawn.values())
        where |= dict.fromkeys(weights, file)
    index = {"metadata": {"total_size": total}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return total


def pairs() -> tk.Prompts:
    """Random pairs that differ in one token."""
    rng = np.random.default_rng(0)
    clean = rng.integers(10, 500, (PAIRS, LENGTH)).tolist()
    corrupted = [[*row[:FIRST], 505 + i, *row[FIRST + 1 :]] for i, row in enumerate(clean)]
    return tk.Prompts.from_tokens(clean, corrupted, [[7]] * PAIRS, [[17]] * PAIRS)


def status(name: str) -> int:
    """Bytes that the system counts for this process under a name of /proc/self/status."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(name)


def measure(folder: Path, small: bool, stream: bool) -> None:
    """One process's run; JSON, and the values beside the model."""
    from tlkit.models.streamed import layers_of

    warm = tk.HookedTransformer.from_pretrained("tiny:llama", device="cpu")
    sweep = tk.Sweep(tk.Patch(tk.Site("resid_pre")), layer=range(3), pos=range(LENGTH))
    tk.run(warm, pairs(), sweep, tk.LogitDiff())  # libraries and threads take what they take
    before = {name: status(name) for name in ("VmData", "VmRSS")}
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins here
    if stream:
        most = before["VmData"] + LIMIT[small]
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    started = time.perf_counter()
    model = tk.HookedTransformer.from_pretrained(folder, device="cpu", stream=stream)
    loaded = time.perf_counter()
    layers = layers_of(model)
    n_layers = int(model.cfg.n_layers)
    sweep = tk.Sweep(tk.Patch(tk.Site("resid_pre")), layer=range(n_layers), pos=range(LENGTH))
    # A first run tries the model out and hashes its weights; neither is the sweep's own cost.
    tk.run(model, pairs(), tk.Sweep(tk.Patch(tk.Site("resid_pre")), layer=(0, 1), pos=(FIRST,)),
           tk.LogitDiff(), budget=BUDGET[small])  # fmt: skip
    warmed, read = time.perf_counter(), layers.files.bytes_read if layers else 0
    found = tk.run(model, pairs(), sweep, tk.LogitDiff(), budget=BUDGET[small])
    done = time.perf_counter()
    np.save(folder / f"{stream}.npy", found["value"].values)
    told = {
        "seconds_to_load": loaded - started, "seconds_first_run": warmed - loaded,
        "seconds": done - warmed, "peak_above_baseline": status("VmHWM") - before["VmRSS"],
        "baseline": before["VmRSS"], "cells": int(found.attrs["cells"]),
    }  # fmt: skip
    if layers:
        told |= {
            "bytes_read": layers.files.bytes_read - read, "bytes_read_before": read,
            "layer_bytes": layers.largest, "blocks_left": layers.in_memory,
        }  # fmt: skip
    sys.stdout.write(json.dumps(told))


def child(folder: Path, small: bool, stream: bool) -> dict:
    """Run `measure` in a process of its own."""
    mode = ["--stream"] if stream else []
    size = ["--small"] if small else []
    command = [sys.executable, __file__, "--folder", str(folder), *mode, *size]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Write, run both, compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--stream", action="store_true")
    asked = parser.parse_args()
    if asked.folder:
        measure(asked.folder, asked.small, asked.stream)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        weights = write_model(folder, SMALL if asked.small else FULL)
        memory = child(folder, asked.small, False)
        streamed = child(folder, asked.small, True)
        values = [np.load(folder / f"{stream}.npy") for stream in (False, True)]
    say({
        "machine": machine(), "weights": weights, "limit": LIMIT[asked.small],
        "weights_over_limit": weights / LIMIT[asked.small], "budget": BUDGET[asked.small],
        "in_memory": memory, "streamed": streamed,
        "bytes_read_over_weights": streamed["bytes_read"] / weights,
        "peak_in_layers_and_budget": (streamed["peak_above_baseline"] - BUDGET[asked.small])
        / streamed["layer_bytes"],
        "seconds_over_in_memory": streamed["seconds"] / memory["seconds"],
        "largest_value": float(np.abs(values[0]).max()),
        "largest_difference": float(np.abs(values[0] - values[1]).max()),
    })  # fmt: skip


if __name__ == "__main__":
    main()
