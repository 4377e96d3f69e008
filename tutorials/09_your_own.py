# %% [markdown]
# # 9. Your own model, metric and intervention
#
# **Question.** Does the engine keep its promises for things that it has never seen?
#
# **Expect.** A metric and an intervention of your own, ten lines each, give the same numbers on the
# fast engine as on the slow one, and as a hook written by hand.

# %%
from dataclasses import dataclass

import torch

import tlkit as tk

model = tk.HookedTransformer.from_pretrained("smollm2-135m-instruct")
prompts = tk.Prompts.from_pairs(
    model,
    ["When Mary and John went to the store, John gave a drink to"],
    ["When Mary and John went to the store, Mary gave a drink to"],
    ["Mary"],
    ["John"],
)

# %% [markdown]
# **An intervention** is frozen data with one method. This one halves what points away from the mean
# over the hidden dimensions.


# %%
@dataclass(frozen=True)
class Shrink(tk.Intervention):
    """Pull an activation towards its own mean."""

    factor: float = 0.5

    def edit(self, act, source):
        mean = act.mean(-1, keepdim=True)
        return mean + self.factor * (act - mean)


# %%
sweep = tk.Sweep(Shrink(tk.Site("mlp_out")), layer=range(0, 30, 3), factor=[0.5, 0.0])
fast = tk.run(model, prompts, sweep, [tk.LogitDiff(), tk.AnswerProb()], on="clean")
slow = tk.run(
    model, prompts, sweep, [tk.LogitDiff(), tk.AnswerProb()], on="clean", engine="reference"
)
gap = float(abs(fast["effect"] - slow["effect"]).max())
print(f"packed against one hooked pass a cell: {gap:.1e}")

# %%
tk.plots.curve(fast, "layer", lines="factor", variable="effect", metric="logit_diff")

# %% [markdown]
# **By hand**, one cell of it with TransformerLens's own hooks:


# %%
def shrink(act, hook):
    mean = act.mean(-1, keepdim=True)
    return mean + 0.5 * (act - mean)


ids = torch.tensor(prompts.clean)
with torch.no_grad():
    plain = model(ids)[0, -1]
    changed = model.run_with_hooks(ids, fwd_hooks=[("blocks.3.hook_mlp_out", shrink)])[0, -1]
mary, john = prompts.answers[0][0], prompts.wrong_answers[0][0]
by_hand = float((changed[mary] - changed[john]) - (plain[mary] - plain[john]))
cell = fast["effect"].sel(layer=3, factor=0.5, metric="logit_diff").squeeze()
print(f"by hand {by_hand:+.4f}, tlkit {float(cell):+.4f} logits")

# %% [markdown]
# **A model of your own** is checked by `tlkit check --model ./mine`: are logits Hugging Face's, does
# every hook land, which sites can be swept fast?

# %%
mine = tk.HookedTransformer.from_pretrained("tiny:gemma2")
few = tk.Prompts.from_tokens([[1, 5, 9, 4]], [[1, 5, 7, 4]], model=mine)
small = tk.run(mine, few, tk.Sweep(tk.Patch(tk.Site("z")), layer=range(2), head=[0, 1]), tk.KL())
small["effect"].squeeze().to_series()

# %%
assert gap < 1e-3
assert abs(by_hand - float(cell)) < 1e-3

# %% [markdown]
# **What this does not show.** That an intervention means something: shrinking an MLP's output puts
# the stream where training never put it. Compare with a control of the same size.
