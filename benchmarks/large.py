"""A bfloat16 Llama of 1.1B random weights: does a sweep fit, and what does it cost?

    python benchmarks/large.py

Layer x position and layer x head on one pair of 24 tokens that differ from the 17th on, in a
process whose peak memory is told.
"""

import resource
import time

import torch
from patching import long_pair
from timing import machine, say

import tlkit as tk

SHAPES = {
    "vocab_size": 49152, "hidden_size": 2048, "intermediate_size": 5632,
    "num_hidden_layers": 22, "num_attention_heads": 32, "num_key_value_heads": 4,
}  # fmt: skip


def main() -> None:
    """One model, two sweeps."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)  # so that no fp32 copy is ever made
    hf = LlamaForCausalLM(LlamaConfig(**SHAPES)).eval().requires_grad_(False)
    torch.set_default_dtype(before)
    tokenizer = tk.HookedTransformer.from_pretrained("smollm2-135m-instruct").tokenizer
    model = tk.HookedTransformer.from_pretrained(hf, tokenizer=tokenizer)
    prompts = long_pair(24, 16)
    layers = range(SHAPES["num_hidden_layers"])
    sweeps = {
        "resid_pre": tk.Sweep(tk.Patch(tk.Site("resid_pre")), layer=layers, pos=range(24)),
        "z": tk.Sweep(tk.Patch(tk.Site("z")), layer=layers, head=range(0, 32, 8)),
    }
    results = {"machine": machine(), "weights": sum(p.numel() for p in hf.parameters())}
    for name, sweep in sweeps.items():
        cost = tk.plan(model, prompts, sweep, tk.LogitDiff())
        started = time.perf_counter()
        found = tk.run(model, prompts, sweep, tk.LogitDiff(), audit=2 / cost.cells)
        results[name] = {
            "cells": cost.cells, "planned_seconds": cost.seconds,
            "seconds_with_audit": time.perf_counter() - started,
            "audit_difference": found.attrs["audit_difference"],
            "largest_effect": float(abs(found["effect"]).max()),
        }  # fmt: skip
    results["peak_gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    say(results)


if __name__ == "__main__":
    main()
