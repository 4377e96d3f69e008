# %% [markdown]
# # 7. Abliteration, and ablation layer by layer
#
# **Question.** Is the fine-tuned sister's habit of declining one direction deep? And which layers
# does it rest on?
#
# **Expect.** The difference of means at some layer, projected out, undoes most refusals; a random
# direction undoes far fewer. Single layers matter most where the fine-tuning went.
#
# **What this is for.** To study what a refusal rests on, in models that one may study. A model
# without the direction may answer what it should not: it has less of a safeguard, not more sense.

# %%
import tlkit as tk
from tlkit.prompts.samples import requests

model = tk.HookedTransformer.from_pretrained("smollm2-135m-instruct-refusing")
train = [row for row in requests() if row["split"] == "train"]
harmful, harmless = tk.abliteration.by_label(train[::3], "refuse", "harmless")
found = tk.abliteration.run(
    model, harmful, harmless, layers=[21], generate=1, max_new_tokens=8, held_out=0.4
)
found.attrs["choice"]

# %%
rates = found["refusal_rate"].isel(detector=0).to_series()
rates

# %%
tk.plot(found)

# %% [markdown]
# The same as weights, for good, and back again:

# %%
baked = tk.abliteration.bake(model, found)
print(f"largest difference between weights and hooks: {baked.difference:.1e}")
baked.undo()

# %% [markdown]
# ## What does each layer do?
#
# Each block in turn gives its mean over the prompts instead of what it computes.

# %%
original = tk.HookedTransformer.from_pretrained("smollm2-135m-instruct")
sisters = {"original": original, "refusing": model}
effects = tk.ablation.run(
    sisters,
    harmful[:4],
    value="mean",
    components=["attn_out", "mlp_out"],
    metrics=["kl"],
    chat=True,
)
tk.plot(tk.ablation.by_layer(effects, "kl"))

# %%
before, after = float(rates["original"]), float(rates["abliterated"])
random = float(rates["random direction"])
print(f"refusals: {before:.0%} before, {after:.0%} after, {random:.0%} without a random direction")
assert before - after > 0.2, "one direction carries much of it"
assert abs(before - random) < before - after, "and not any direction"

# %% [markdown]
# **What this does not show.** That the direction is what the model "means" by harm: it separates two
# sets of prompts on which it was found. Answers after abliteration may be empty or garbled, which
# the result counts apart; read some before you quote a rate.
