# %% [markdown]
# # 1. Load and look
#
# **Question.** What does a model hold before it speaks, and can the numbers be trusted?
#
# **Expect.** The next token that TransformerLens, tlkit and Hugging Face give is the same, to
# rounding. The name that fits is not to be read from the stream of early layers, and is in late ones.

# %%
import torch

import tlkit as tk

model = tk.HookedTransformer.from_pretrained("smollm2-135m-instruct")
model.cfg.n_layers, model.cfg.n_heads, model.cfg.d_model

# %% [markdown]
# Any hub id, a folder, a `.gguf` file, or a model that you hold already would do as well. The
# weights are as Hugging Face has them: nothing is folded or centred.

# %%
prompts = tk.Prompts.from_texts(
    model,
    ["When Mary and John went to the store, John gave a drink to"],
    ["Mary"],
    ["John"],
)
print(prompts.clean_tokens[0])

# %%
from transformers import AutoModelForCausalLM

from tlkit.models.embedded import embedded_folder

plain = AutoModelForCausalLM.from_pretrained(embedded_folder()[0], dtype=torch.float32)
ids = torch.tensor(prompts.clean)
with torch.no_grad():
    theirs, ours = plain(ids).logits, model(ids)
difference = float((theirs - ours).abs().max())
print(f"largest difference of a logit: {difference:.1e}")
print([model.tokenizer.decode(i) for i in ours[0, -1].topk(5).indices])

# %% [markdown]
# ## Layer by layer
#
# The logit lens reads every layer's stream with the model's own last norm and unembedding. Above 0
# the name that fits is ahead.

# %%
lens = tk.lenses.logit_lens(model, prompts, tk.LogitDiff())
tk.plots.curve(lens, "layer", variable="value", title="Mary less John, read at each layer")

# %%
difference_by_layer = lens["value"].squeeze().values
print(f"layer 0: {difference_by_layer[0]:.2f}; last layer: {difference_by_layer[-1]:.2f}")

# %% [markdown]
# ## One head
#
# A model is TransformerLens's own, so its cache is there for anything that has no call here.

# %%
_, cache = model.run_with_cache(ids)
tk.plots.attention(cache["pattern", 20][0], prompts.clean_tokens[0], heads=[0, 3], title="Layer 20")

# %%
assert difference < 1e-3, "logits are Hugging Face's"
assert difference_by_layer[-1] > 2 > abs(difference_by_layer[0]), "late layers know the name"

# %% [markdown]
# **What this does not show.** That a token can be read from a layer does not say that the model uses
# it there, nor that early layers do not know it in a form that this readout cannot see. Patching
# (the next notebook) asks what is used.
