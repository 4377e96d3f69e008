# %% [markdown]
# # 3. Pathways: is a verdict drawn from the question or from the answer?
#
# **Question.** A probe can tell wrong answers from right ones. Does what it reads flow from the
# question's tokens (Q) or from the answer's own (A)? (Luo et al. 2026, arXiv:2601.07422.)
#
# **Expect.** Cutting the question off turns some verdicts (by definition those are "Q-anchored"),
# with a large ΔP. With groups chosen by one probe and measured by another, the gap shrinks.

# %%
import tlkit as tk

model = tk.HookedTransformer.from_pretrained("smollm2-135m-instruct")
questions = tk.pathways.own_questions(60)
questions[0]

# %% [markdown]
# A model of this size answers few of them, so answers are *given*: each answer string once as the
# right one and once as a wrong one, so that the string itself says nothing.

# %%
found = tk.pathways.run(
    model, questions, template="short", answers="given", parts=["group"], seeds=(0, 1),
    folds=3, min_examples=5,
)  # fmt: skip
tk.pathways.counts(found)

# %%
tk.plot(tk.pathways.curves(found, "group"))

# %% [markdown]
# The dashed curve is of answers whose verdict did not turn. The same with held-out groups:

# %%
tk.plot(tk.pathways.curves(found, "held_out"))

# %% [markdown]
# How good are the probes, and what do probes give that were taught shuffled labels?

# %%
auc = found["probe_auc"].mean("seed").squeeze()
shuffled = found["probe_auc_control"].mean("seed").squeeze()
best = int(auc.argmax())
print(f"best layer {best}: AUC {float(auc[best]):.2f}, shuffled {float(shuffled[best]):.2f}")

# %%
tk.save(found, "pathways.zarr", overwrite=True)
tk.report([tk.plot(tk.pathways.curves(found, "group")), tk.pathways.table(found)], "pathways.html")

# %%
assert float(auc[best]) > 0.65, "right and wrong can be told apart somewhere"
assert abs(float(shuffled.mean()) - 0.5) < 0.15, "and not by probes that were taught noise"

# %% [markdown]
# **What this does not show.** That the gap of the first figure is a mechanism: groups that are
# chosen by the number which is then plotted differ in it, whatever the model does. And 120 examples
# of one small model do not speak for Qwen3-32B; the command for that is in the pathways page.
