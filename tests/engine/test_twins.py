"""The packed engine gives the reference engine's numbers: every family, site and intervention.

Both engines share what works conditions out, so what that does is held to plain hooks in
`test_several.py`, `test_transformer_lens.py` and others.
"""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from tlkit.checks.twins import compare
from tlkit.models.bridge import Parts
from tlkit.models.tiny import FAMILIES
from tlkit.spec.attention import Knockout, ScaleEdges
from tlkit.spec.interventions import Ablate, Intervention, Patch, Project, Skip, Steer
from tlkit.spec.metrics import KL, AnswerProb, LogitDiff
from tlkit.spec.sites import EDGES, HEADS, NEURONS, STREAM, Site
from tlkit.spec.sweeps import Condition, Sweep

TOLERANCE = 1e-5
LAYERS = range(3)
PACKED = [family for family in FAMILIES if family not in ("falcon", "bloom")]


@dataclass(frozen=True)
class Mix(Intervention):
    """A user's own: half of the activation and half of the clean run's, squashed."""

    source: str = "clean"

    def edit(self, act, source):
        return torch.tanh(0.5 * act + 0.5 * source)


def conditions(*several):
    return Sweep.over([Condition(str(i), tuple(one)) for i, one in enumerate(several)])


def sites(parts, components, **narrow):
    """Sites of the components that a model has, in every layer."""
    return [
        Site(c, layer=layer, **narrow)
        for c in components
        if not parts.unsupported(c)
        for layer in LAYERS
    ]


def streams(parts, direction):
    names = (*STREAM[1:], *NEURONS)
    found = [[Patch(s)] for pos in (None, 5) for s in sites(parts, names, pos=pos)]
    found += [[Patch(Site("embed", pos=pos))] for pos in (None, 5, (3, 4, 9))]
    return conditions(*found)


def heads(parts, direction):
    found = [[Patch(s)] for s in sites(parts, HEADS, head=1)]
    found += [[Patch(s)] for s in sites(parts, HEADS, head=0, pos=(7, 8))]
    return conditions(*found)


def edges(parts, direction):
    found = [[Patch(s)] for s in sites(parts, EDGES, head=1)]
    found += [[Patch(s)] for s in sites(parts, EDGES, head=3, query=8)]
    found += [[Patch(s)] for s in sites(parts, EDGES, query=(7, 8), key=3)]
    found += [[Ablate(s)] for s in sites(parts, EDGES, head=2, query=8)]
    return conditions(*found)


def ablations(parts, direction):
    found = [[Ablate(s)] for s in sites(parts, HEADS, head=1, pos=4)]
    found += [[Ablate(s)] for s in sites(parts, ("resid_mid", "mlp_pre", "mlp_out"))]
    found += [[Ablate(s, value="mean")] for s in sites(parts, ("attn_out", "z"))]
    found += [[Ablate(s, value="mean", per_position=True)] for s in sites(parts, ("v",), head=1)]
    found += [[Ablate(s, value="resample", seed=4)] for s in sites(parts, ("mlp_out", "q"))]
    found += [[Ablate(Site("embed", pos=2))], [Ablate(Site("embed"), value="mean")]]
    return conditions(*found)


def stream_arithmetic(parts, direction):
    parts_of_block = ("resid_post", "attn_out", "mlp_out")
    found = [[Skip(s)] for s in sites(parts, parts_of_block)]
    found += [[Skip(Site("resid_post", layer=1, pos=(4, 5)))]]
    found += [[Project(s, direction)] for s in sites(parts, ("resid_pre", "mlp_out"))]
    found += [[Project(Site("resid_post"), torch.stack([direction, direction.roll(1)]))]]
    found += [[Steer(s, direction, scale=-3.0)] for s in sites(parts, ("resid_mid", "resid_post"))]
    found += [[Mix(s)] for s in sites(parts, ("resid_pre", "z", "mlp_post"), pos=(0, 5))]
    return conditions(*found)


def knockouts(parts, direction):
    found = []
    for mode in ("zero", "-inf"):
        found += [[Knockout(keys=(1, 2), layers=layer, mode=mode)] for layer in LAYERS]
        found += [[Knockout(keys=3, layers=range(k + 1), mode=mode)] for k in LAYERS]
        found += [[Knockout(keys=(2,), layers=1, heads=h, mode=mode)] for h in (0, (1, 3))]
        found += [[Knockout(queries=(3, 6), keys=(0, 1, 2, 3), layers=0, mode=mode)]]
        found += [[Knockout(queries="end", keys=(4,), mode=mode)]]
    found += [[ScaleEdges(keys=(1,), factor=3.0, layers=layer)] for layer in LAYERS]
    return conditions(*found)


def several(parts, direction):
    at = Site
    found = [
        [Patch(at("z", layer=0, head=1, pos=8)), Ablate(at("mlp_out", layer=1, pos=4)),
         Knockout(keys=3, layers=2), Patch(at("resid_post", layer=2, pos=8))],
        [Patch(at("v", layer=1)), Patch(at("pattern", layer=1)), Ablate(at("z", layer=1, head=0))],
        [Ablate(at("attn_out", layer=0)), Patch(at("resid_pre", layer=2, pos=1))],
        [Ablate(at("mlp_out", layer=0, pos=2)), Patch(at("resid_post", layer=1))],
        [Ablate(at("z", layer=0)), Patch(at("q", layer=1), source="corrupted")],
        [Patch(at("resid_pre", layer=2)), Ablate(at("resid_post", layer=1))],
        [Knockout(keys=1, layers=1), Knockout(keys=4, layers=1, mode="-inf")],
        [ScaleEdges(keys=1, factor=2.0, layers=1), Patch(at("pattern", layer=1, head=1, query=8))],
        [Steer(at("embed", pos=3), direction), Patch(at("k", layer=2, head=1))],
    ]  # fmt: skip
    if not parts.unsupported("resid_mid"):
        found += [[Steer(at("resid_mid", layer=1), direction), Patch(at("attn_out", layer=1))]]
        found += [[Patch(at("resid_mid", layer=1)), Steer(at("resid_pre", layer=1), direction)]]
    return conditions(*found)


GROUPS = (streams, heads, edges, ablations, stream_arithmetic, knockouts, several)


def agree(found, least_effect=1e-3):
    """What every comparison of the engines asks for."""
    assert found.packed.attrs["engine"] == "packed", found.packed.attrs.get("engine_reason")
    assert found.gap < TOLERANCE
    assert found.effect > least_effect


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.__name__)
@pytest.mark.parametrize("family", PACKED)
def test_packed_equals_reference(tiny_bridge, ragged, projection, direction, family, group):
    model = tiny_bridge(family)
    sweep = group(Parts(model), direction)
    agree(compare(model, ragged(model), sweep, projection))


@pytest.mark.parametrize("family", PACKED)
def test_noising_given_interventions_and_several_metrics(tiny_bridge, ragged, family):
    model = tiny_bridge(family)
    given = [Ablate(Site("z", layer=0, head=2)), Knockout(keys=(1,), layers=(1,))]
    sweep = Sweep(Patch(Site("z"), source="corrupted"), layer=LAYERS, head=(0, 3), given=given)
    metrics = [LogitDiff(), KL(), AnswerProb(log=True)]
    found = compare(model, ragged(model), sweep, metrics, on="clean")
    agree(found)
    for name in ("base", "clean", "corrupted", "effect"):
        np.testing.assert_allclose(found.packed[name], found.reference[name], atol=TOLERANCE)


@pytest.mark.parametrize("on", ["clean", "corrupted"])
@pytest.mark.parametrize("family", ["gpt2", "gptj", "llama3", "mistral", "gemma3", "phi"])
def test_pairs_of_unequal_length_agree_and_leave_gaps(tiny_bridge, gapped, projection, family, on):
    model = tiny_bridge(family)
    source = "clean" if on == "corrupted" else "corrupted"
    for component in ("resid_pre", "v", "mlp_out"):
        sweep = Sweep(Patch(Site(component), source=source), layer=LAYERS, pos=range(9))
        found = compare(model, gapped, sweep, projection, on=on)
        agree(found)
        missing = np.isnan(found.packed["value"].values[0, 0]).T
        # From tokens alone: the shared beginning (BOS) and the shared end are mapped.
        lengths = [len(ids) for ids in getattr(gapped, on)]
        other = [len(ids) for ids in getattr(gapped, source)]
        for example, (here, there) in enumerate(zip(lengths, other, strict=True)):
            tail = here - (4, 3, 5)[example]
            expected = [p >= here or (here != there and 1 <= p < tail) for p in range(9)]
            assert missing[example].tolist() == expected


@pytest.mark.parametrize("family", ["falcon", "bloom"])
def test_a_family_without_a_route_says_so(tiny_bridge, ragged, projection, family):
    model = tiny_bridge(family)
    sweep = Sweep(Patch(Site("resid_pre")), layer=(1,), pos=(8,))
    found = compare(model, ragged(model), sweep, projection)
    assert found.packed.attrs["engine"] == "reference"
    assert "cannot be called on packed tokens" in found.packed.attrs["engine_reason"]
    assert found.gap == 0
