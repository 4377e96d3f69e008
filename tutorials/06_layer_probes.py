# %% [markdown]
# # 6. Layer probes: the F1 map, and what it says once the controls are read
#
# **Question.** At which layer, in block output or attention output, are requests that should be
# declined told from harmless ones, in a model and in its fine-tuned sister?
#
# **Expect.** In the first layers no better than chance, about 0.8 in the middle ones; the sister, made
# by changing layers 14 on, looks the same. A bag of words does worse on topics that it was not taught.

# %%
import tlkit as tk
from tlkit.prompts.samples import requests

models = {
    "original": tk.HookedTransformer.from_pretrained("smollm2-135m-instruct"),
    "refusing": tk.HookedTransformer.from_pretrained("smollm2-135m-instruct-refusing"),
}
rows = [{**row, "group": row["topic"]} for row in requests()[::3]]
told = tk.layer_probes.run(models, rows, positive="refuse", features="last", folds=4)
tk.layer_probes.figure(told)

# %% [markdown]
# Folds are of topics, so that no probe is tested on a topic that it was taught. The best layer of
# each model, beside the controls:

# %%
import pandas as pd

table = pd.DataFrame(tk.layer_probes.table(told))
table

# %%
f1 = told["f1"].mean("fold")
controls = told["f1_control"].mean("fold")
print(controls.max([dim for dim in controls.dims if dim != "control"]).to_series())

# %%
best = float(f1.max())
words = float(controls.sel(control="words").max())
print(f"best layer's F1 {best:.2f}; a bag of words {words:.2f}")
assert best > words, "the model has more than the words"
assert best > 0.7, "some layer tells them apart, on topics it was not taught"

# %% [markdown]
# **What this does not show.** What the model does with it. A probe reads what is there; whether
# refusals hang on it is asked by taking it out (the next notebook): these maps hardly differ between a
# model that declines and one that does not. Without folds by topic words alone would do well, and the
# map would say little; and the best of thirty layers is best partly by chance.
