# %% [markdown]
# # 2. Activation patching: where does a name travel?
#
# **Question.** In "When Mary and John went to the store, John gave a drink to", which activations
# tell the model that the answer is Mary?
#
# **Expect.** The answer hangs on the second name's position in early and middle layers, moves to the
# last token in late ones, and a few heads move it (Wang et al. 2022, arXiv:2211.00593).

# %%
import numpy as np

import tlkit as tk
from tlkit.prompts.samples import pairs

model = tk.HookedTransformer.from_pretrained("smollm2-135m-instruct")
rows = [row for row in pairs() if row["kind"] == "ioi"][:4]
prompts = tk.Prompts.from_pairs(
    model,
    [row["clean"] for row in rows],
    [row["corrupted"] for row in rows],
    [row["answer"].strip() for row in rows],
    [row["wrong_answer"].strip() for row in rows],
)
print(prompts.show_alignment(0))

# %% [markdown]
# The corrupted prompt differs in one name, so that the answer is the other one. One activation at a
# time goes from the clean run into the corrupted one. What would that cost?

# %%
tk.plan(model, prompts, tk.patching.sweep(model, prompts, "resid_pre"), tk.LogitDiff())

# %% [markdown]
# Cells before the first token that differs are free: they provably change nothing.

# %%
streams = tk.patching.run(model, prompts, "resid_pre", audit=0.02)
tk.plot(streams)

# %%
print(f"largest difference from one hooked pass a cell: {streams.attrs['audit_difference']:.1e}")

# %% [markdown]
# `recovered` is 0 where a patch does nothing and 1 where it brings the clean answer back. Which
# heads move the name?

# %%
heads = tk.patching.run(model, prompts, "z")
tk.plot(heads)

# %%
effect = heads["effect"].squeeze().mean("example")
order = np.argsort(-effect.values.ravel())[:3]
top = [tuple(int(i) for i in np.unravel_index(k, effect.shape)) for k in order]
print("strongest heads (layer, head):", top)

# %%
recovered = streams["recovered"].squeeze().isel(example=0)  # names stand elsewhere in the others
second_name, last = prompts.differing(0)[0], len(prompts.clean[0]) - 1
early = float(recovered.sel(layer=5, pos=second_name))
late = float(recovered.sel(layer=29, pos=last))
print(f"layer 5 at the second name: {early:.2f}; layer 29 at the last token: {late:.2f}")
assert early > 0.9 and late > 0.9, "first at the name, then at the end"
assert all(layer >= 15 for layer, _ in top), "late heads move it"

# %% [markdown]
# **What this does not show.** A head that restores the answer alone need not be needed: others may
# do the same (ablate to see). Four prompts of one template say nothing about other sentences; read
# the per-example effects before you speak of "the" circuit.
