# %% [markdown]
# # 5. How does attention vary over a long document?
#
# **Question.** Layer by layer, how much do the attention weights of the last queries vary, and what
# does fine-tuning change?
#
# **Expect.** Little variance in the first layer, more in later ones. The fine-tuned sister was
# changed from layer 14 on: below it, the two curves are one.

# %%
import numpy as np

import tlkit as tk
from tlkit.prompts.samples import documents

models = {
    "original": tk.HookedTransformer.from_pretrained("smollm2-135m-instruct"),
    "refusing": tk.HookedTransformer.from_pretrained("smollm2-135m-instruct-refusing"),
}
seen = tk.variance.run(models, documents(), max_tokens=600)
print(seen.attrs["documents"])

# %% [markdown]
# Weights stream by in blocks of queries: nothing of length × length is held, so that the same call
# takes a document of 30 000 tokens.

# %%
tk.plot(tk.variance.by_layer(seen, "temporal"))

# %%
difference = tk.variance.compare(seen, "original", "refusing")
tk.plot(difference)

# %% [markdown]
# The other kinds, and what else is measured of each head:

# %%
tk.plot(tk.variance.by_layer(seen, "column"))

# %%
temporal = seen["layer_variance"].sel(kind="temporal").mean("document")
original, refusing = (temporal.sel(model=name).values for name in models)
changed = np.abs(refusing - original)
print(f"layers 0 to 13: {changed[:14].max():.1e}; from 14 on: {changed[14:].max():.2f}")
assert original[1:].max() > 2 * original[0], "the first layer varies least"
assert changed[:14].max() < 1e-3 < changed[15:].max(), "what was not trained did not change"

# %% [markdown]
# **What this does not show.** Curves called "variance score" are in circulation whose definition we
# could not find; these three kinds are defined in the literature, and which of them such a curve
# shows is a guess. Four documents are few: a paired test over four cannot reach 5 %.
