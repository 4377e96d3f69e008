"""Several edits in one cell, and edits of one's own, against plain TransformerLens hooks.

Which edits provably change nothing, and from which token on, is worked out once for both engines;
here nothing of that is used.
"""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from tlkit.engine.run import run
from tlkit.errors import EngineError, SpecError
from tlkit.prompts.prompts import Prompts
from tlkit.spec.attention import Knockout, ScaleEdges
from tlkit.spec.interventions import Ablate, Intervention, Patch, Skip, Steer
from tlkit.spec.sites import Site
from tlkit.spec.sweeps import Condition, Sweep

ENGINES = ("packed", "reference")
CLEAN = [0, 40, 41, 300, 17, 90, 12, 33]
CORRUPTED = [0, 40, 41, 290, 17, 90, 12, 30]  # differs at 3 and 7
PROMPTS = Prompts.from_tokens([CLEAN], [CORRUPTED])
BEFORE = 1  # a position left of every difference


@pytest.fixture
def values(tiny_bridge, projection):
    """A function from interventions and hooks to: value by each engine, value under plain hooks."""

    def both(engine, interventions, hooks, family="llama3", base=CORRUPTED, on="corrupted"):
        model = tiny_bridge(family)
        cell = Sweep.over([Condition("cell", tuple(interventions))])
        found = run(model, PROMPTS, cell, projection, on=on, engine=engine)
        with torch.no_grad():
            logits = model.run_with_hooks(torch.tensor([base]), fwd_hooks=hooks)
        return float(found["value"].squeeze()), float(projection(logits[:, -1:]))

    return both


@pytest.fixture
def cached(tiny_bridge):
    """The activations of both runs, by name."""

    def of(ids, family="llama3"):
        return tiny_bridge(family).run_with_cache(torch.tensor([ids]))[1]

    return of


def put(cache, name, where=slice(None), head=slice(None)):
    """A hook that puts a cached activation in, at some positions and heads."""

    def hook(value, hook):
        value = value.clone()
        if value.ndim == 4:
            value[:, where, head] = cache[name][:, where, head]
        else:
            value[:, where] = cache[name][:, where]
        return value

    return name, hook


def zero(name, where=slice(None)):
    def hook(value, hook):
        value = value.clone()
        value[:, where] = 0
        return value

    return name, hook


def at(component, layer, **narrow):
    return Site(component, layer=layer, **narrow)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_patch_of_equal_tokens_counts_behind_another_edit(values, cached, engine):
    """The clean run has the same token there, but not what the other edit made of it."""
    edits = [Ablate(at("mlp_out", 0)), Patch(at("resid_pre", 2, pos=BEFORE))]
    clean = cached(CLEAN)
    hooks = [zero("blocks.0.hook_mlp_out"), put(clean, "blocks.2.hook_resid_pre", BEFORE)]
    ours, expected = values(engine, edits, hooks)
    without = values(engine, edits[:1], hooks[:1])[1]
    assert abs(expected - without) > 1e-3
    assert ours == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_whole_patch_keeps_its_leading_positions_behind_another_edit(values, cached, engine):
    edits = [Ablate(at("mlp_out", 0)), Patch(at("resid_pre", 2))]
    hooks = [zero("blocks.0.hook_mlp_out"), put(cached(CLEAN), "blocks.2.hook_resid_pre")]
    ours, expected = values(engine, edits, hooks)
    late = [hooks[0], put(cached(CLEAN), "blocks.2.hook_resid_pre", slice(3, None))]
    assert abs(expected - values(engine, edits, late)[1]) > 1e-3
    assert ours == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_patched_into_itself_freezes_what_another_edit_would_change(values, cached, engine):
    """Path patching: everything but the direct path is held at the base run's activation."""
    own = cached(CORRUPTED)
    edits = [
        Ablate(at("z", 0, head=1)),
        Patch(at("attn_out", 1), source="corrupted"),
        Patch(at("mlp_out", 1), source="corrupted"),
    ]

    def head_gone(value, hook):
        value = value.clone()
        value[:, :, 1] = 0
        return value

    hooks = [
        ("blocks.0.attn.hook_z", head_gone),
        put(own, "blocks.1.hook_attn_out"),
        put(own, "blocks.1.hook_mlp_out"),
    ]
    ours, expected = values(engine, edits, hooks)
    assert abs(expected - values(engine, edits, hooks[:1])[1]) > 1e-3
    assert ours == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_edit_right_of_or_above_a_patch_leaves_it_without_effect(values, engine):
    late = [Steer(at("resid_pre", 2), torch.ones(64)), Patch(at("resid_pre", 1, pos=BEFORE))]
    right = [Ablate(at("attn_out", 0, pos=4)), Patch(at("resid_post", 1, pos=BEFORE))]
    for edits in (late, right):
        ours, _ = values(engine, edits, [])
        assert ours == values(engine, edits[:1], [])[0]


@pytest.mark.parametrize("engine", ENGINES)
def test_edits_happen_in_the_models_order_not_in_the_lists(values, cached, engine):
    later_wins = [
        ("blocks.2.hook_resid_pre", Patch(at("resid_pre", 2)), Ablate(at("resid_post", 1))),
        ("blocks.1.hook_resid_mid", Patch(at("resid_mid", 1)), Ablate(at("attn_out", 1))),
        ("blocks.1.attn.hook_z", Patch(at("z", 1)), Ablate(at("pattern", 1))),
        ("blocks.1.mlp.hook_post", Patch(at("mlp_post", 1)), Ablate(at("mlp_pre", 1))),
    ]
    for name, later, earlier in later_wins:
        alone, _ = values(engine, [later], [])
        assert abs(alone - values(engine, [earlier], [])[0]) > 1e-3
        if name != "blocks.1.hook_resid_mid":  # read-only in TransformerLens
            expected = values(engine, [], [put(cached(CLEAN), name)])[1]
            assert alone == pytest.approx(expected, abs=1e-5)
        for edits in ([later, earlier], [earlier, later]):
            assert values(engine, edits, [])[0] == pytest.approx(alone, abs=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
def test_two_cuts_of_one_row_do_not_depend_on_their_order(values, tiny_bridge, engine):
    """Cuts before the softmax are cut first, whatever is multiplied after it."""
    cut = Knockout(queries=7, keys=4, layers=1, mode="-inf")
    for factor in (Knockout(queries=7, keys=1, layers=1), ScaleEdges(queries=7, keys=1, layers=1,
                                                                     factor=3.0)):  # fmt: skip

        def pattern(value, hook, factor=factor):
            value = value.clone()
            value[:, :, 7, 4] = 0
            value[:, :, 7] /= value[:, :, 7].sum(-1, keepdim=True)
            value[:, :, 7, 1] *= factor.factor
            return value

        hooks = [("blocks.1.attn.hook_pattern", pattern)]
        for edits in ([cut, factor], [factor, cut]):
            ours, expected = values(engine, edits, hooks)
            assert ours == pytest.approx(expected, abs=1e-5)
            assert abs(ours - values(engine, edits[:1], [])[0]) > 1e-5


@pytest.mark.parametrize("engine", ENGINES)
def test_a_cell_of_four_kinds(values, cached, engine):
    clean = cached(CLEAN)
    edits = [
        Patch(at("v", 0, head=1)),
        Skip(at("mlp_out", 1)),
        Patch(at("q", 2, head=3, pos=(3, 7))),
        Ablate(at("resid_post", 2, pos=2)),
    ]
    hooks = [
        put(clean, "blocks.0.attn.hook_v", head=1),
        zero("blocks.1.hook_mlp_out"),
        put(clean, "blocks.2.attn.hook_q", [3, 7], 3),
        zero("blocks.2.hook_resid_post", 2),
    ]
    ours, expected = values(engine, edits, hooks)
    assert ours == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
def test_noising_patches_the_corrupted_run_into_the_clean_one(values, cached, engine):
    edits = [Patch(at("z", 1, head=2), source="corrupted")]
    hooks = [put(cached(CORRUPTED), "blocks.1.attn.hook_z", head=2)]
    ours, expected = values(engine, edits, hooks, base=CLEAN, on="clean")
    assert ours == pytest.approx(expected, abs=1e-5)


@dataclass(frozen=True)
class Mean(Intervention):
    """The mean over the positions of the clean run: positions left of a difference change too."""

    source: str = "clean"

    def edit(self, act, source):
        return source.mean(0, keepdim=True).expand_as(act)


@dataclass(frozen=True)
class Double(Intervention):
    """Twice the run's own activation, read from a source."""

    source: str = "corrupted"

    def edit(self, act, source):
        return 2 * source


@pytest.mark.parametrize("engine", ENGINES)
def test_ones_own_edit_of_a_source_is_never_taken_for_a_patch(values, cached, engine):
    """A patch from the run itself, or of equal tokens, is free; another edit of it is not."""
    clean, own = cached(CLEAN), cached(CORRUPTED)
    name = "blocks.1.hook_resid_pre"

    def mean(value, hook):
        return clean[name].mean(1, keepdim=True).expand_as(value)

    def double(value, hook):
        value = value.clone()
        value[:, BEFORE] = 2 * own[name][:, BEFORE]
        return value

    for edit, hook in (
        (Mean(at("resid_pre", 1)), mean),
        (Double(at("resid_pre", 1, pos=BEFORE)), double),
    ):
        ours, expected = values(engine, [edit], [(name, hook)])
        assert abs(expected - values(engine, [], [])[1]) > 1e-3
        assert ours == pytest.approx(expected, abs=1e-5)


@dataclass(frozen=True)
class Wrong(Intervention):
    """An edit that forgets its positions."""

    def edit(self, act, source):
        return act[:1]


@pytest.mark.parametrize("engine", ENGINES)
def test_an_edit_of_another_shape_is_an_error(values, engine):
    with pytest.raises(EngineError, match=r"Wrong.edit returned \(1, 64\).*\(8, 64\) at resid_pre"):
        values(engine, [Wrong(at("resid_pre", 1))], [])


@pytest.mark.parametrize("engine", ENGINES)
def test_given_interventions_are_in_every_cell_and_in_the_base(tiny_bridge, projection, engine):
    model = tiny_bridge("llama3")
    given = [Ablate(at("mlp_out", 0))]
    sweep = Sweep(Patch(Site("resid_pre")), layer=(1, 2), pos=(BEFORE, 3), given=given)
    found = run(model, PROMPTS, sweep, projection, engine=engine)
    clean = model.run_with_cache(torch.tensor([CLEAN]))[1]

    def value(*hooks):
        with torch.no_grad():
            logits = model.run_with_hooks(torch.tensor([CORRUPTED]), fwd_hooks=list(hooks))
        return float(projection(logits[:, -1:]))

    gone = zero("blocks.0.hook_mlp_out")
    base = value(gone)
    assert float(found["base"].squeeze()) == pytest.approx(base, abs=1e-5)
    for i, layer in enumerate((1, 2)):
        for j, position in enumerate((BEFORE, 3)):
            expected = value(gone, put(clean, f"blocks.{layer}.hook_resid_pre", position))
            assert float(found["value"][0, i, j, 0]) == pytest.approx(expected, abs=1e-5)
            effect = float(found["effect"][0, i, j, 0])
            assert effect == pytest.approx(expected - base, abs=1e-5)
            assert abs(effect) > 1e-4


@pytest.mark.parametrize("engine", ENGINES)
def test_what_cannot_be_carried_out_is_refused(tiny_bridge, projection, engine):
    model = tiny_bridge("llama3")

    def refused(*edits, prompts=PROMPTS):
        cell = Sweep.over([Condition("cell", edits)])
        run(model, prompts, cell, projection, engine=engine)

    with pytest.raises(SpecError, match=r"layer=3.*this model has layers 0 to 2"):
        refused(Patch(at("z", 3)))
    with pytest.raises(SpecError, match=r"head=2.*this model has heads 0 to 1"):
        refused(Patch(at("k", 1, head=2)))  # key/value heads are fewer
    with pytest.raises(SpecError, match="this model has heads 0 to 3"):
        refused(Knockout(keys=1, heads=4))
    with pytest.raises(SpecError, match="no span 'subject'; they have: end"):
        refused(Patch(at("z", 1, pos="subject")))
    with pytest.raises(SpecError, match="wants the 'corrupted' run"):
        alone = Prompts.from_tokens([CLEAN])
        refused(Patch(at("z", 1), source="corrupted"), prompts=alone)
    with pytest.raises(SpecError, match=r"Ablate\('mean'\) of pattern is not defined"):
        refused(Ablate(at("pattern", 1), value="mean"))
    with pytest.raises(SpecError, match="needs a second example"):
        refused(Ablate(at("z", 1), value="resample"))
    gaps = Prompts.from_tokens([CLEAN], [[*CORRUPTED[:2], *CORRUPTED[3:]]])
    with pytest.raises(SpecError, match="needs pairs of equal length"):
        refused(Patch(at("pattern", 1)), prompts=gaps)


@pytest.mark.parametrize("engine", ENGINES)
def test_what_an_example_lacks_is_nan_and_never_zero(tiny_bridge, projection, engine):
    """Positions beyond a short prompt, and a span that an example does not have."""
    spans = {"subject": [(1, 3), None]}
    short = [0, 44, 12]
    prompts = Prompts.from_tokens([CLEAN, short], spans=spans)
    model = tiny_bridge("llama3")
    by_position = Sweep(Ablate(Site("resid_pre", layer=1)), pos=(2, 5, "subject"))
    found = run(model, prompts, by_position, projection, engine=engine)["value"].values[0]
    assert np.isnan(found).tolist() == [[False, False], [False, True], [False, True]]
    cut = Sweep.over([Condition("cut", (Knockout(keys="subject"),))])
    value = run(model, prompts, cut, projection, engine=engine)["value"].values[0, 0]
    assert np.isnan(value).tolist() == [False, True]
