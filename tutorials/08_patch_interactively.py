# %% [markdown]
# # 8. Patch interactively
#
# **Question.** What does *this* cell do?
#
# **Expect.** A map of 30 layers by the prompt's tokens. A click patches one cell; numbers, next
# tokens, attention and a continuation appear beside it.

# %%
import tlkit as tk

model = tk.HookedTransformer.from_pretrained("smollm2-135m-instruct")
prompts = tk.Prompts.from_pairs(
    model,
    ["When Mary and John went to the store, John gave a drink to"],
    ["When Mary and John went to the store, Mary gave a drink to"],
    ["Mary"],
    ["John"],
)
explorer = tk.explore(model, prompts)
explorer

# %% [markdown]
# Try: layer 10 at the second name, then layer 28 at the last token; shift-click both. Two cells that
# carry the same thing one after another do not add up.
#
# What is on the screen is here as well, exact:

# %%
exact = tk.patching.run(model, prompts, "resid_pre")
effect = exact["effect"].squeeze()
second_name, last = prompts.differing(0)[0], len(prompts.clean[0]) - 1
print(f"layer 10, second name: {float(effect.sel(layer=10, pos=second_name)):+.3f} logits")
print(f"layer 28, last token:  {float(effect.sel(layer=28, pos=last)):+.3f} logits")

# %% [markdown]
# The same with code: both at once, and how the text then goes on.

# %%
both = tk.Condition(
    "both",
    (
        tk.Patch(tk.Site("resid_pre", layer=10, pos=second_name)),
        tk.Patch(tk.Site("resid_pre", layer=28, pos=last)),
    ),
)
joint = tk.run(model, prompts, tk.Sweep.over([both]), tk.LogitDiff(), on="corrupted")
ids = tk.generate(model, prompts, both, on="corrupted", max_new_tokens=8)
print(f"joint: {float(joint['effect'].squeeze()):+.3f} logits")
print(model.tokenizer.decode(ids[0]))

# %%
parts = float(effect.sel(layer=10, pos=second_name)), float(effect.sel(layer=28, pos=last))
together = float(joint["effect"].squeeze())
assert 0.8 * max(parts) < together < 0.7 * sum(parts), "the parts carry the same thing"

# %% [markdown]
# **What this does not show.** A cell that is clicked because it stands out was chosen among hundreds;
# check it on other prompts (`tk.patching.run` on many pairs) before it becomes a story.
