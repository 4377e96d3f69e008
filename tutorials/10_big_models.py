# %% [markdown]
# # 10. Big models: plan first, bound the memory, lose nothing
#
# **Question.** What will a study of a large model cost, and what if it is interrupted?
#
# **Expect.** A plan before anything runs; the same numbers under a small memory budget; a run that
# was broken off and goes on without repeating a finished cell.

# %%
import json
import tempfile
from pathlib import Path

import tlkit as tk
from tlkit.prompts.samples import pairs

model = tk.HookedTransformer.from_pretrained("smollm2-135m-instruct")
rows = [row for row in pairs() if row["kind"] == "ioi"][:2]
prompts = tk.Prompts.from_pairs(
    model, [row["clean"] for row in rows], [row["corrupted"] for row in rows],
    [row["answer"].strip() for row in rows], [row["wrong_answer"].strip() for row in rows],
)  # fmt: skip
sweep = tk.patching.sweep(model, prompts, "resid_pre")
tk.plan(model, prompts, sweep, tk.LogitDiff(), budget="64MiB")

# %% [markdown]
# A pathways study of a 32B model is planned from its `config.json` alone; no weights are needed.

# %%
folder = Path(tempfile.mkdtemp()) / "Qwen3-32B"
folder.mkdir()
(folder / "config.json").write_text(
    json.dumps({
        "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "vocab_size": 151936,
        "hidden_size": 5120, "intermediate_size": 25600, "num_hidden_layers": 64,
        "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128,
        "max_position_embeddings": 40960, "tie_word_embeddings": False,
    }),
    encoding="utf-8",
)  # fmt: skip
from tlkit.models.outline import outline

large = outline(str(folder), dtype="bfloat16")
tk.pathways.plan(large, tk.pathways.own_questions(100), parts=["group"])

# %% [markdown]
# ## Interrupted
#
# Finished cells go into a store as they come. Here the run is broken off from within.

# %%
store = Path(tempfile.mkdtemp()) / "cells.zarr"


class Enough(Exception):
    """Stop here."""


def stop(done, total):
    if done < total:
        raise Enough


small = "8MiB"  # so small that the sweep takes several chunks
try:
    tk.run(model, prompts, sweep, tk.LogitDiff(), store=store, budget=small, progress=stop)
except Enough:
    print("broken off")

# %%
chunks = {"went on": [], "from the start": []}
again = tk.run(
    model, prompts, sweep, tk.LogitDiff(), store=store, budget=small,
    progress=lambda done, total: chunks["went on"].append(done),
)  # fmt: skip
whole = tk.run(
    model, prompts, sweep, tk.LogitDiff(), budget=small,
    progress=lambda done, total: chunks["from the start"].append(done),
)  # fmt: skip
gap = float(abs(again["effect"] - whole["effect"]).max())
print({name: len(several) for name, several in chunks.items()}, "chunks")
print(f"largest difference from an uninterrupted run: {gap:.1e}")

# %%
tk.plot(again)

# %%
assert len(chunks["went on"]) < len(chunks["from the start"]), "finished cells were not run again"
assert gap < 1e-3

# %% [markdown]
# **What this does not show.** A model of 32B at work: this notebook runs one of 135M. GPUs have not
# been tried.
