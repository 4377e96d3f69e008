"""A plain Hugging Face model with torch hooks: what the study is held against."""

import contextlib
from functools import cache

import numpy as np
import pytest
import torch

from tlkit.models.tiny import tiny

# family: (list of blocks, what attention adds, what the MLP adds, the matrix that reads z)
MODULES = {
    "gpt2": ("transformer.h", "attn", "mlp", "attn.c_proj"),
    "gptj": ("transformer.h", "attn", "mlp", "attn.out_proj"),
    "neox": ("gpt_neox.layers", "attention", "mlp", "attention.dense"),
    "llama3": ("model.layers", "self_attn", "mlp", "self_attn.o_proj"),
    "qwen3": ("model.layers", "self_attn", "mlp", "self_attn.o_proj"),
    "opt": ("model.decoder.layers", "self_attn", "fc2", "self_attn.out_proj"),
    "gemma3": ("model.layers", "post_attention_layernorm", "post_feedforward_layernorm",
               "self_attn.o_proj"),
}  # fmt: skip
HEADS = 4


class Plain:
    """Runs one prompt at a time; ``changes`` maps (component, layer) to what stands there."""

    def __init__(self, family):
        self.hf, self.family = tiny(family), family
        blocks, *self.names = MODULES[family]
        self.blocks = self.hf.get_submodule(blocks)

    def module(self, component, layer):
        at = {"attn_out": 0, "mlp_out": 1, "z": 2}[component]
        return self.blocks[layer].get_submodule(self.names[at])

    @contextlib.contextmanager
    def hooked(self, functions):
        """Functions of (tensor) by (component, layer); None leaves it."""
        handles = []
        for (component, layer), function in functions.items():
            module = self.module(component, layer)
            if component == "z":

                def before(_, args, function=function):
                    new = function(args[0])
                    return None if new is None else (new, *args[1:])

                handles.append(module.register_forward_pre_hook(before))
            else:

                def after(_, args, out, function=function):
                    tensor = out if torch.is_tensor(out) else out[0]
                    new = function(tensor)
                    if new is None:
                        return None
                    return new if torch.is_tensor(out) else (new, *out[1:])

                handles.append(module.register_forward_hook(after))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def logits(self, ids, functions=None):
        with torch.no_grad(), self.hooked(functions or {}):
            return self.hf(torch.tensor([list(ids)]), use_cache=False).logits[0].double()

    def acts(self, ids, component, layer):
        """``[pos, feature]`` of the plain run."""
        seen = []
        self.logits(ids, {(component, layer): lambda x: seen.append(x.clone())})
        return seen[0].reshape(len(ids), -1)

    def continued(self, ids, functions, new, stop):
        ids = list(ids)
        for step in range(new):
            token = int(self.logits(ids, functions)[-1].argmax())
            if token == stop:
                return ids[len(ids) - step :] if step else []
            ids.append(token)
        return ids[-new:]

    @staticmethod
    def put(value):
        """A function that puts a value (``[feature]`` or ``[pos, feature]``) into every place."""

        def function(x):
            wanted = torch.as_tensor(value, dtype=x.dtype)
            if wanted.ndim == 2:
                last = len(wanted) - 1
                wanted = wanted[[min(p, last) for p in range(x.reshape(-1, x.shape[-1]).shape[0])]]
            return wanted.expand(x.reshape(-1, x.shape[-1]).shape).reshape(x.shape)

        return function

    @staticmethod
    def put_head(value, head):
        """The same for one head's part of z."""

        def function(x):
            new, width = x.clone(), x.shape[-1] // HEADS
            own = slice(head * width, (head + 1) * width)
            new[..., own] = Plain.put(value)(x)[..., own]
            return new

        return function

    @staticmethod
    def effects(plain, changed, ids, answer=None):
        """KL at the prompt's last token, loss of the prompt, probability of the answer."""
        n = len(ids)
        base, other = plain.log_softmax(-1), changed.log_softmax(-1)
        kl = float((base[n - 1].exp() * (base[n - 1] - other[n - 1])).sum())
        loss = float(np.mean([-other[p, ids[p + 1]] for p in range(n - 1)]))
        if answer is None:
            return kl, loss, None
        return (
            kl,
            loss,
            float(np.exp(sum(float(other[n - 1 + i, t]) for i, t in enumerate(answer)))),
        )


@pytest.fixture(scope="session")
def plain_model():
    return cache(Plain)
