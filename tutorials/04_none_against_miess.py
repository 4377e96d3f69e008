# %% [markdown]
# # 4. None against Miess: what do meaningless tokens do to heads?
#
# **Question.** Put "/ / / …" before a problem. Which heads attend differently to the problem itself
# (Shi et al. 2025, arXiv:2510.01032), and is it the meaninglessness that does it?
#
# **Expect.** The mean weight on the problem's tokens falls nearly everywhere, for weights sum to 1.
# Beside a control of the same length much less is left.

# %%
import numpy as np

import tlkit as tk
from tlkit.prompts.samples import word_problems

model = tk.HookedTransformer.from_pretrained("smollm2-135m-instruct")
problems = tk.Prompts.from_texts(model, [row["question"] for row in word_problems()[:12]])
conditions = {
    "Miess": tk.Insert("/ " * 20, at="start"),
    "words": tk.Insert("he " * 20, at="start"),
}
seen = tk.conditions.run(model, problems, conditions, permutations=2000)
seen.attrs["inserted_tokens"]

# %% [markdown]
# The average weight that later tokens give to each token of the problem, for three heads of the
# first layers (counted from 1, as in the paper):

# %%
tk.plot(tk.conditions.lines(seen, [(0, 0), (1, 3), (2, 5)], one_based=True))

# %%
plain = tk.conditions.changed_heads(seen, "Miess", permutations=2000)
beside = tk.conditions.changed_heads(seen, "Miess", against="words", permutations=2000)
tk.plot(plain, variable="effect_size")

# %%
tk.plot(beside, variable="effect_size")

# %%
tk.conditions.ranked(beside, 5)

# %% [markdown]
# ## The affine claim
#
# Inserted tokens scale a head's output and add something: z' = λ z + Σ. In the first layer that is
# an identity once the rotary shift is taken out; in later ones it need not hold.

# %%
residual = seen["affine_residual_in_place"].sel(condition="Miess").mean("example")
print("residual, first layer:", f"{float(residual.sel(layer=0).max()):.1e}")
print("residual, median of the last layer:", f"{float(residual.sel(layer=29).median()):.2f}")

# %%
fell = float((plain["difference"] < 0).mean())
left = np.abs(beside["difference"].values).mean() / np.abs(plain["difference"].values).mean()
print(f"{fell:.0%} of heads fell against None; {left:.0%} of the change is left beside the control")
assert fell > 0.8, "any insertion takes weight away"
assert left < 0.7, "the control takes most of it as well"
assert float(residual.sel(layer=0).max()) < 1e-3

# %% [markdown]
# **What this does not show.** That meaningless tokens make a model solve more problems:
# `tk.conditions.accuracy` measures that, and this model solves too few to tell. Heads that differ
# from the control differ between "/" and "he", two strings out of many.
