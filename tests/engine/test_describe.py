"""Faults to plant: show an array by its first numbers; keep an object's address; hash a tensor's
shape alone."""

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from tlkit.engine.describe import described
from tlkit.prompts.prompts import Prompts
from tlkit.spec.attention import Knockout, ScaleEdges
from tlkit.spec.insertions import Insert
from tlkit.spec.interventions import Ablate, Intervention, Patch, Project, Skip, Steer
from tlkit.spec.metrics import AnswerProb
from tlkit.spec.sites import Site
from tlkit.spec.sweeps import Condition, Sweep

SITE = Site("resid_post", layer=1)


@dataclass(frozen=True, eq=False)
class Own(Intervention):
    """A user's own, holding whatever a user puts in."""

    held: Any = None


def said(thing):
    """The description, after a trip through strict JSON."""
    return json.loads(json.dumps(described(thing), allow_nan=False))


def test_a_sweep_is_its_axes_and_its_template():
    sweep = Sweep(
        Patch(Site("z")), layer=range(30), head=(0, 2, 1), given=[Knockout(keys="subject")]
    )
    assert said(sweep) == {
        "axes": {"layer": "0..29", "head": [0, 2, 1]},
        "template": {"Patch": {"site": {"Site": {"component": "z"}}, "source": "clean"}},
        "given": [{"Knockout": {"keys": "subject", "mode": "zero"}}],
    }
    plain = Sweep.over([Condition("base"), Condition("cut", (Ablate(SITE),))])
    assert said(plain)["axes"] == {"condition": ["base", "cut"]}
    assert said(plain)["conditions"][1]["Condition"]["interventions"] == [
        {
            "Ablate": {
                "site": {"Site": {"component": "resid_post", "layer": 1}},
                "value": "zero", "per_position": False, "seed": 0,
            }
        }
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        (range(3), "0..2"),
        ([4, 5, 6], "4..6"),
        ([0, 1], [0, 1]),
        ([0, 2, 3], [0, 2, 3]),
        ([True, 2, 3], [True, 2, 3]),
        ([3, 2, 1], [3, 2, 1]),
        ((0.0, 1.0, 2.0), [0.0, 1.0, 2.0]),
    ],
)
def test_only_whole_numbers_in_a_row_become_a_range(values, shown):
    assert said(values) == shown


def test_values_of_numpy_are_those_of_python():
    assert said([np.int64(2), np.float32(0.5), np.bool_(True)]) == [2, 0.5, True]
    assert said({1: np.arange(2), "by": {"layer": (1, None)}}) == {
        "1": said(np.arange(2)),
        "by": {"layer": [1, None]},
    }


@pytest.mark.parametrize("kind", [torch.tensor, np.array], ids=["tensor", "array"])
def test_each_number_counts(kind):
    # 2000 numbers: their repr shows six.
    first = kind([0.0] * 2000)
    second = kind([0.0] * 1000 + [1.0] + [0.0] * 999)
    assert said(first) == said(kind([0.0] * 2000))
    assert said(first)["tensor"] == [2000]
    assert said(first) != said(second)
    assert said(Own(SITE, first)) != said(Own(SITE, second))
    flat, square = kind([0.0] * 4), kind([[0.0] * 2] * 2)
    assert said(flat) != said(square)
    assert said(torch.ones(3)) == said(np.ones(3)) == said(torch.ones(3, dtype=torch.bfloat16))


def test_directions_and_prompts_are_told_apart():
    along, across = torch.tensor([1.0, 0, 0]), torch.tensor([0, 1.0, 0])
    for kind in (Project, Steer):
        assert said(kind(SITE, along)) == said(kind(SITE, along.clone()))
        assert said(kind(SITE, along)) != said(kind(SITE, across))
    some = [Prompts.from_tokens([[1, 2, 3]]), Prompts.from_tokens([[1, 2, 4]])]
    shown = [said(Ablate(SITE, value="mean", reference=prompts)) for prompts in some]
    assert shown[0]["Ablate"]["reference"] == {"prompts": some[0].hash()}
    assert shown[0] != shown[1]


def test_functions_are_told_by_what_they_do():
    def twice(x):
        return 2 * x

    def thrice(x):
        return 3 * x

    same = [lambda x: x + 1 for _ in range(2)]
    assert said(Own(SITE, same[0])) == said(Own(SITE, same[1]))
    assert said(twice)["sha256"] != said(thrice)["sha256"]


def test_every_process_says_the_same():
    code = (
        "import json, torch\n"
        "from tlkit.engine.describe import described\n"
        "from tlkit.spec.interventions import Steer\n"
        "from tlkit.spec.sites import Site\n"
        "class Thing: pass\n"
        "things = [Steer(Site('embed'), torch.ones(4)), lambda x: (lambda y: x + y), Thing()]\n"
        "print(json.dumps(described(things)))"
    )
    said_by = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
        for _ in range(2)
    }
    assert len(said_by) == 1
    assert json.loads(said_by.pop())[2] == "<__main__.Thing object>"


@pytest.mark.parametrize(
    "thing",
    [
        Skip(Site("mlp_out", layer=0)), ScaleEdges(keys=(1, 2), heads=[0], factor=0.5),
        AnswerProb(log=True), Insert("/ " * 3, label="Miess"),
    ],
    ids=lambda thing: type(thing).__name__,
)  # fmt: skip
def test_every_field_that_is_set_is_told(thing):
    told = said(thing)[type(thing).__name__]
    fields = {name: value for name, value in vars(thing).items() if value is not None}
    assert set(told) == set(fields)
    assert all(told[name] == said(value) for name, value in fields.items())
