"""What interventions do to an activation, and what they refuse; directions and edges."""

import dataclasses

import pytest
import torch

from tlkit.errors import SpecError
from tlkit.spec.attention import Knockout, ScaleEdges
from tlkit.spec.directions import Direction
from tlkit.spec.interventions import Ablate, Intervention, Patch, Project, Skip, Steer
from tlkit.spec.sites import Site

ACT = torch.tensor([[3.0, 4.0, 0.0], [1.0, 0.0, 2.0]])
RESID = Site("resid_post", layer=1)


def test_patch_gives_the_source_and_needs_one():
    source = ACT + 1
    assert Patch(RESID).edit(ACT, source) is source
    assert Patch(RESID).needs == "run"
    with pytest.raises(SpecError, match=r"Patch at Site\('resid_post', layer=1\) has no source"):
        Patch(RESID).edit(ACT, None)


def test_ablate():
    assert Ablate(RESID).edit(ACT, None).abs().sum() == 0
    mean = torch.tensor([[1.0, 2.0, 3.0]])
    assert Ablate(RESID, value="mean").edit(ACT, mean).tolist() == mean.expand(2, 3).tolist()
    assert [Ablate(RESID, value=v).needs for v in ("zero", "mean", "resample")] == [
        "nothing", "mean", "resample",
    ]  # fmt: skip


def test_project_takes_a_subspace_out():
    """Eq. 4 of Arditi et al. by hand: the part along (3, 4, 0) / 5 goes."""
    one = Project(RESID, torch.tensor([3.0, 4.0, 0.0])).edit(ACT, None)
    expected = torch.tensor([[0.0, 0.0, 0.0], [1 - 0.36, -0.48, 2.0]])
    torch.testing.assert_close(one, expected)
    plane = Project(RESID, torch.tensor([[1.0, 0, 0], [1.0, 1.0, 0]])).edit(ACT, None)
    torch.testing.assert_close(plane, torch.tensor([[0.0, 0, 0], [0, 0, 2.0]]))


def test_steer_adds_a_unit_vector_and_keeps_its_sign():
    for sign in (1, -1):
        steered = Steer(RESID, sign * torch.tensor([0.0, 0.0, 7.0]), scale=2.0).edit(ACT, None)
        torch.testing.assert_close(steered - ACT, torch.tensor([[0, 0, 2.0 * sign]] * 2))


def test_no_edit_writes_into_what_it_gets():
    for one in (Ablate(RESID), Project(RESID, ACT[0]), Steer(RESID, ACT[0])):
        act = ACT.clone()
        one.edit(act, None)
        assert torch.equal(act, ACT)


def test_skip_is_attention_and_mlp_without_their_output():
    assert [p.site for p in Skip(RESID).parts()] == [
        Site("attn_out", layer=1), Site("mlp_out", layer=1),
    ]  # fmt: skip
    assert [p.site for p in Skip(Site("mlp_out", layer=1, pos=2)).parts()] == [
        Site("mlp_out", layer=1, pos=2)
    ]
    with pytest.raises(SpecError, match=r"Skip takes Site\('resid_post'\) for a block.*not 'z'"):
        Skip(Site("z"))


def test_what_interventions_refuse(unchecked):
    with pytest.raises(SpecError, match=r"Ablate\(value='none'\) is not known; use 'zero'"):
        Ablate(RESID, value="none")
    with pytest.raises(SpecError, match=r"Project needs a direction: Project\(site, direction\)"):
        Project(RESID)
    with pytest.raises(SpecError, match="Steer acts on streams and neurons; 'z' is neither"):
        Steer(Site("z"), ACT[0])
    with pytest.raises(SpecError, match="Steer adds one direction; this one spans a subspace"):
        Steer(RESID, ACT)

    class Own(Intervention):
        pass

    with pytest.raises(SpecError, match=r"Own must define edit\(act, source\)"):
        Own(RESID).edit(ACT, None)


def test_interventions_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign"):
        Patch(RESID).source = "corrupted"


def test_directions_are_unit_vectors_or_orthonormal_rows():
    one = Direction(torch.tensor([0.0, 3.0, -4.0]))
    torch.testing.assert_close(one.vector, torch.tensor([[0.0, 0.6, -0.8]]))
    assert (one.rank, one.norm) == (1, 5.0)
    plane = Direction(ACT)
    torch.testing.assert_close(plane.vector @ plane.vector.T, torch.eye(2))
    # The same plane: what is in it has no part outside.
    torch.testing.assert_close(ACT @ plane.vector.T @ plane.vector, ACT)
    assert one.cosine(Direction(torch.tensor([0.0, 1.0, 0.0]))) == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        (torch.zeros(3), "norm of about 0"),
        (torch.tensor([1.0, float("nan")]), "finite vector"),
        (torch.ones(2, 3), "depend on one another"),
        (torch.ones(1, 2, 3), "finite vector"),
    ],
)
def test_what_points_nowhere_is_no_direction(vector, message):
    with pytest.raises(SpecError, match=message):
        Direction(vector)


@pytest.mark.parametrize(
    ("cut", "edges"),
    [
        # From every query strictly after the last key, those of the answer too.
        (Knockout(keys=(1, 2)), ((3, 4, 5, 6), (1, 2))),
        (Knockout(keys="subject"), ((3, 4, 5, 6), (1, 2))),
        (Knockout(keys=4), ((5, 6), (4,))),
        (Knockout(queries="end", keys=(0, -1)), ((4,), (0, 4))),
        (Knockout(queries=(2, 3), keys="subject"), ((2, 3), (1, 2))),
        (Knockout(keys=9), ((), ())),
    ],
)
def test_edges(cut, edges):
    assert cut.edges(5, 7, {"subject": [(1, 3)]}, 0) == edges


def test_factors_of_edges():
    assert Knockout(keys=1).factor == 0
    assert Knockout(keys=1, mode="-inf").factor is None
    assert ScaleEdges(keys=1, factor=2.5).factor == 2.5
    assert Knockout(keys=1, layers=[0, 1], heads=[2]).layers == (0, 1)


def test_what_knockouts_refuse(unchecked):
    with pytest.raises(SpecError, match="Knockout needs keys: a span's name or positions"):
        Knockout()
    with pytest.raises(SpecError, match=r"Knockout\(mode='half'\) is not known"):
        Knockout(keys=1, mode="half")
