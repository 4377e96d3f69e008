"""What must not matter to a sweep: chunks, groups, the order of its cells, which prompts share it.

Conditions, prompts and sizes are drawn by hypothesis, the same ones on every run.
"""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

import tlkit.engine.packed_values
from tlkit.engine.run import run
from tlkit.errors import SpecError
from tlkit.models.bridge import Parts
from tlkit.prompts.prompts import Prompts
from tlkit.spec.attention import Knockout, ScaleEdges
from tlkit.spec.interventions import Ablate, Patch
from tlkit.spec.sites import COMPONENTS, EDGES, HEADS, Site
from tlkit.spec.sweeps import Condition, Sweep

# The run-time type checker draws from `random` while hypothesis draws; nothing here does.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module")
FAMILIES = ("llama3", "gptj", "mistral")
BUDGETS = (40_000, "64KiB", "1GiB")
quick = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@st.composite
def pairs(draw, count=3):
    """Pairs of 3 to 11 tokens that differ in one or two places, or (rarely) in length."""
    clean, corrupted = [], []
    for _ in range(count):
        length = draw(st.integers(3, 11))
        row = draw(st.lists(st.integers(5, 500), min_size=length, max_size=length))
        twin = list(row)
        for where in draw(st.sets(st.integers(0, length - 1), min_size=1, max_size=2)):
            twin[where] = (twin[where] + 7) % 500 + 5
        if draw(st.integers(0, 4)) == 0:
            twin.insert(draw(st.integers(1, length - 1)), 501)
        clean.append(row)
        corrupted.append(twin)
    return Prompts.from_tokens(clean, corrupted)


positions = st.one_of(st.none(), st.integers(0, 10), st.just("end"))
layers = st.integers(0, 2)


@st.composite
def interventions(draw, source, even):
    """Any site that is patched or ablated, or edges that are cut."""
    if draw(st.integers(0, 4)) == 0:
        keys = tuple(sorted(draw(st.sets(st.integers(0, 2), min_size=1))))
        chosen = draw(st.one_of(st.none(), layers))
        if draw(st.booleans()):
            return Knockout(keys=keys, layers=chosen, mode=draw(st.sampled_from(["zero", "-inf"])))
        return ScaleEdges(keys=keys, layers=chosen, factor=2.0)
    allowed = [c for c in COMPONENTS if even or c not in EDGES]
    component = draw(st.sampled_from(allowed))
    narrow = {} if component == "embed" else {"layer": draw(layers)}
    if component in EDGES:
        narrow |= {"head": draw(st.integers(0, 3)), "query": draw(positions)}
    else:
        narrow["pos"] = draw(positions)
    if component in HEADS:
        narrow["head"] = draw(st.one_of(st.none(), st.integers(0, 1)))
    site = Site(component, **narrow)
    return draw(st.sampled_from([Patch(site, source=source), Ablate(site)]))


@st.composite
def problems(draw):
    """Prompts, a sweep of a few cells of one or two interventions, and the run that is changed."""
    prompts = draw(pairs())
    on = draw(st.sampled_from(["corrupted", "clean"]))
    source = "clean" if on == "corrupted" else "corrupted"
    even = [*map(len, prompts.clean)] == [*map(len, prompts.corrupted)]
    cells = draw(st.lists(st.lists(interventions(source, even), min_size=1, max_size=2),
                          min_size=2, max_size=5))  # fmt: skip
    return prompts, [Condition(str(i), tuple(cell)) for i, cell in enumerate(cells)], on


def served(model, conditions):
    """The conditions that a model has all sites of."""
    parts = Parts(model)
    return [
        condition
        for condition in conditions
        if not any(hasattr(one, "site") and parts.unsupported(one.site.component)
                   for one in condition.interventions)
    ]  # fmt: skip


def value(model, prompts, conditions, metric, on, **options):
    try:
        found = run(model, prompts, Sweep.over(conditions), metric, on=on, **options)
    except SpecError as error:
        if "No prompt has the positions" in str(error):  # told, and tested elsewhere
            reject()
        raise
    return found["value"].values[0]


def same(one, other, tolerance=1e-5):
    np.testing.assert_allclose(one, other, atol=tolerance)


@pytest.mark.parametrize("family", FAMILIES)
@quick
@given(problem=problems())
def test_packed_is_the_reference(tiny_bridge, projection, family, problem):
    model, (prompts, conditions, on) = tiny_bridge(family), problem
    conditions = served(model, conditions)
    if conditions:
        packed = value(model, prompts, conditions, projection, on)
        same(packed, value(model, prompts, conditions, projection, on, engine="reference"))


@pytest.mark.parametrize("family", FAMILIES)
@quick
@given(problem=problems(), data=st.data())
def test_chunks_groups_order_and_company_do_not_matter(
    tiny_bridge, projection, family, problem, data
):
    model, (prompts, conditions, on) = tiny_bridge(family), problem
    conditions = served(model, conditions)
    if not conditions:
        return
    expected = value(model, prompts, conditions, projection, on)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("CHUNK", "GROUP_ROWS"):
            patch.setattr(tlkit.engine.packed_values, name, data.draw(st.sampled_from([1, 3, 17])))
        same(value(model, prompts, conditions, projection, on), expected)
    budget = data.draw(st.sampled_from(BUDGETS))
    same(value(model, prompts, conditions, projection, on, budget=budget), expected)
    order = data.draw(st.permutations(range(len(conditions))))
    shuffled = [conditions[i] for i in order]
    same(value(model, prompts, shuffled, projection, on), expected[list(order)])
    company = data.draw(st.permutations(range(len(prompts))))[: data.draw(st.integers(1, 3))]
    some = prompts[list(company)]
    same(value(model, some, conditions, projection, on), expected[:, list(company)])
    again = value(model, prompts, conditions, projection, on)
    np.testing.assert_array_equal(again, expected)
