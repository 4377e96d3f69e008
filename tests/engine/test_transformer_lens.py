"""Sweeps give TransformerLens's own patching maps, wherever those are right.

Left out: k and v of grouped families in `*_every` (padded with zeros there), patterns of families
whose pattern hook is read-only (nothing happens there), resid_mid with gradients on (only the MLP
sees the patch there).
"""

import functools

import numpy as np
import pytest
import torch
from transformer_lens import patching

from tlkit.engine.run import run
from tlkit.models.bridge import Parts
from tlkit.models.tiny import FAMILIES
from tlkit.prompts.prompts import Prompts
from tlkit.spec.interventions import Patch
from tlkit.spec.sites import Site
from tlkit.spec.sweeps import Sweep

CLEAN = [[5, 300, 17, 44], [90, 8, 121, 33]]
CORRUPTED = [[5, 290, 17, 44], [91, 8, 121, 30]]
LAYERS, POSITIONS = range(3), range(4)

# Ours: component and axes; theirs: the function that draws the same map.
STREAMS = {
    "resid_pre": patching.get_act_patch_resid_pre,
    "resid_mid": patching.get_act_patch_resid_mid,
    "attn_out": patching.get_act_patch_attn_out,
    "mlp_out": patching.get_act_patch_mlp_out,
}
HEADS = {
    "z": (
        patching.get_act_patch_attn_head_out_by_pos,
        patching.get_act_patch_attn_head_out_all_pos,
    ),
    "q": (patching.get_act_patch_attn_head_q_by_pos, patching.get_act_patch_attn_head_q_all_pos),
    "k": (patching.get_act_patch_attn_head_k_by_pos, patching.get_act_patch_attn_head_k_all_pos),
    "v": (patching.get_act_patch_attn_head_v_by_pos, patching.get_act_patch_attn_head_v_all_pos),
}
PATTERNS = {
    ("layer", "head"): patching.get_act_patch_attn_head_pattern_all_pos,
    ("layer", "head", "query"): patching.get_act_patch_attn_head_pattern_by_pos,
    ("layer", "head", "query", "key"): patching.get_act_patch_attn_head_pattern_dest_src_pos,
}


@pytest.fixture
def both(tiny_bridge, projection, monkeypatch):
    """A function that draws a map with tlkit and with TransformerLens, and holds them together."""
    monkeypatch.setattr(patching, "tqdm", lambda iterable, **_: iterable)
    prompts = Prompts.from_tokens(CLEAN, CORRUPTED)

    def metric(logits):
        return torch.stack([projection(row[None]) for row in logits]).mean()

    @functools.cache
    def cache(family):
        return tiny_bridge(family).run_with_cache(torch.tensor(CLEAN))[1]

    def hold(family, site, function, **axes):
        model = tiny_bridge(family)
        with torch.no_grad():
            theirs = function(model, torch.tensor(CORRUPTED), cache(family), metric).numpy()
        found = run(model, prompts, Sweep(Patch(Site(site)), **axes), projection)
        ours = found["value"].values[0].mean(-1)
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
        assert np.ptp(theirs) > 1e-3
        return float(np.abs(ours - theirs).max())

    return hold


@pytest.mark.parametrize("family", FAMILIES)
def test_streams(both, tiny_bridge, family):
    for site, function in STREAMS.items():
        if not Parts(tiny_bridge(family)).unsupported(site):
            both(family, site, function, layer=LAYERS, pos=POSITIONS)


@pytest.mark.parametrize("family", FAMILIES)
def test_heads(both, tiny_bridge, family):
    parts = Parts(tiny_bridge(family))
    for site, (by_position, everywhere) in HEADS.items():
        heads = range(parts.n_kv_heads if site in "kv" else parts.n_heads)
        both(family, site, by_position, layer=LAYERS, pos=POSITIONS, head=heads)
        both(family, site, everywhere, layer=LAYERS, head=heads)


@pytest.mark.parametrize("family", [f for f in FAMILIES if f not in ("gptj", "opt")])
def test_patterns(both, family):
    ranges = {"layer": LAYERS, "head": range(4), "query": POSITIONS, "key": POSITIONS}
    for axes, function in PATTERNS.items():
        both(family, "pattern", function, **{axis: ranges[axis] for axis in axes})
