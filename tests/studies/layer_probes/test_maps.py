"""Norm maps, attention maps and planes against Hugging Face's own outputs, prompt by prompt."""

import numpy as np
import pytest
import torch

import tlkit as tk
from tlkit.errors import SpecError
from tlkit.models.bridge import unbridged
from tlkit.prompts.prompts import Prompts
from tlkit.studies import layer_probes
from tlkit.studies.layer_probes.features import Making

TEXTS = ["The cat sat on it.", "Who is he?", "Count to five, please.", "Where is the dog?"]
ROWS = [{"prompt": text, "label": "ab"[i % 2]} for i, text in enumerate(TEXTS)]


def outputs(model):
    ids = Prompts.from_texts(model, TEXTS).clean
    with torch.no_grad(), unbridged(model) as hf:
        return [
            hf(torch.tensor([list(row)]), output_hidden_states=True, output_attentions=True)
            for row in ids
        ]


def test_norms_are_aligned_at_the_end_and_averaged_by_class(tiny_bridge):
    model = tiny_bridge("llama3")
    ds = layer_probes.norms(model, ROWS, positive="b", last_tokens=4)
    whole = outputs(model)
    for at, which in ((0, (1, 3)), (1, (0, 2))):
        rows = [whole[i].hidden_states[1][0].norm(dim=-1)[-4:].numpy() for i in which]
        np.testing.assert_allclose(ds["norm"].values[at, 0], np.mean(rows, 0), rtol=1e-4)
    np.testing.assert_allclose(ds["difference"], ds["norm"][0] - ds["norm"][1], rtol=1e-6)
    assert ds["pos"].values.tolist() == [-4, -3, -2, -1]
    assert ds["group"].values.tolist() == ["b", "a"]
    assert len(tk.plot(ds).data) == 2


def test_attention_maps_are_mean_logs(tiny_bridge):
    model = tiny_bridge("llama3")
    ds = layer_probes.attention_maps(model, ROWS, 1, positive="b", last_tokens=3)
    whole = outputs(model)
    # transformers may have put its recording hooks on a shared model twice, bridged and unbridged.
    step = len(whole[0].attentions) // model.cfg.n_layers
    logs = [
        np.log(whole[i].attentions[step][0].numpy() + 1e-30).clip(-10).mean(0)[-3:, -3:]
        for i in (1, 3)
    ]
    wanted = np.where(np.tril(np.ones((3, 3), bool)), np.mean(logs, 0), np.nan)
    np.testing.assert_allclose(ds["log_attention"].values[0], wanted, rtol=1e-4)
    assert len(tk.plot(ds).data) == 2
    assert tk.plot(ds, variable="difference").data[0].type == "heatmap"
    with pytest.raises(SpecError, match="no layer 9; there are 0 to 2"):
        layer_probes.attention_maps(model, ROWS, 9, positive="b")


@pytest.mark.parametrize("method", ["pca", "tsne"])
def test_a_plane_has_a_point_a_prompt(tiny_bridge, method):
    model = tiny_bridge("llama3")
    ds = layer_probes.projection(model, ROWS, 1, positive="b", method=method, making=Making("last"))
    figure = tk.plot(ds)
    assert {trace.name: len(trace.x) for trace in figure.data} == {"a": 2, "b": 2}
    if method == "pca":
        x = np.stack([one.hidden_states[2][0, -1].numpy() for one in outputs(model)])
        z = (x - x.mean(0)) / x.std(0)
        singular = np.linalg.svd(z, compute_uv=False)
        found = np.stack([ds["x"].values, ds["y"].values])
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), singular[:2], rtol=1e-3)
    with pytest.raises(SpecError, match="no method 'umap'"):
        layer_probes.projection(model, ROWS, 1, positive="b", method="umap")
