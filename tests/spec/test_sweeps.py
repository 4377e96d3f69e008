"""Sweeps: their cells in order, their axes, and what they refuse."""

import numpy as np
import pytest
import torch

from tlkit.errors import SpecError
from tlkit.spec.attention import Knockout, ScaleEdges
from tlkit.spec.interventions import Ablate, Patch, Steer
from tlkit.spec.sites import Site
from tlkit.spec.sweeps import Condition, Sweep


def test_cells_run_through_the_last_axis_fastest():
    sweep = Sweep(Patch(Site("z", pos=4)), layer=(0, 2), head=range(2))
    sites = [condition.interventions[0].site for condition in sweep.conditions()]
    assert sites == [Site("z", layer=a, head=b, pos=4) for a in (0, 2) for b in (0, 1)]
    assert sweep.shape == (2, 2)
    assert sweep.axes == {"layer": (0, 2), "head": (0, 1)}
    assert [c.name for c in sweep.conditions()][:2] == ["layer 0, head 0", "layer 0, head 1"]


def test_an_axis_may_be_a_field_of_the_intervention():
    direction = torch.ones(4)
    scales = Sweep(Steer(Site("resid_post", layer=1), direction), scale=(-2.0, 3.0))
    assert [c.interventions[0].scale for c in scales.conditions()] == [-2.0, 3.0]
    kinds = Sweep(Ablate(Site("z", layer=1)), value=("zero", "mean"))
    assert [c.interventions[0].value for c in kinds.conditions()] == ["zero", "mean"]
    cuts = Sweep(Knockout(keys="subject"), layers=[(0,), (0, 1)], mode=("zero", "-inf"))
    assert [(c.interventions[0].layers, c.interventions[0].mode) for c in cuts.conditions()] == [
        ((0,), "zero"), ((0,), "-inf"), ((0, 1), "zero"), ((0, 1), "-inf"),
    ]  # fmt: skip


def test_numbers_of_numpy_and_torch_become_pythons():
    sweep = Sweep(Patch(Site("z")), layer=np.arange(2), head=torch.arange(2), pos=np.array([3]))
    for values in sweep.axes.values():
        assert {type(value) for value in values} == {int}


def test_dimensions_of_results():
    assert Sweep(Patch(Site("k")), head=(0,)).dimension("head") == "kv_head"
    assert Sweep(Patch(Site("q")), head=(0,)).dimension("head") == "head"
    assert Sweep(Knockout(keys=1), heads=(0,), layers=(0,)).dimension("heads") == "head"
    assert Sweep(ScaleEdges(keys=1), layers=(0,)).dimension("layers") == "layer"


@pytest.mark.parametrize(
    ("template", "axes", "message"),
    [
        (Patch(Site("z")), {"query": (1,)}, r"Patch cannot be swept over 'query'; its axes are "
         r"layer, pos, head, source"),
        (Patch(Site("z")), {"layer": ()}, r"The axis 'layer' of this sweep is empty"),
        (Patch(Site("z")), {"layer": (1, 1)}, r"The axis 'layer' of this sweep repeats a value"),
        (Knockout(keys=1), {"layer": (1,)}, r"Knockout cannot be swept over 'layer'"),
        (Ablate(Site("z")), {"value": ("none",)}, r"Ablate\(value='none'\) is not known"),
    ],
)  # fmt: skip
def test_wrong_axes_are_refused(unchecked, template, axes, message):
    with pytest.raises(SpecError, match=message):
        Sweep(template, **axes)


def test_conditions_need_names_of_their_own_and_interventions(unchecked):
    one = Condition("a", (Patch(Site("z", layer=0)),))
    sweep = Sweep.over([one, Condition("base")])
    assert sweep.axes == {"condition": ("a", "base")}
    for several in ([], [one, one]):
        with pytest.raises(SpecError, match="each with a name of its own"):
            Sweep.over(several)
    with pytest.raises(SpecError, match="'cut' is not an intervention"):
        Condition("a", ("cut",))
