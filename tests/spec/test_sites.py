"""Sites: what narrows them, and which token positions they mean."""

import pytest

from tlkit.errors import SpecError
from tlkit.spec.sites import COMPONENTS, Site, positions

SPANS = {"subject": [(1, 3), None]}


def test_a_site_prints_as_it_is_written():
    site = Site("z", layer=3, head=1, pos=-1)
    assert str(site) == "Site('z', layer=3, head=1, pos=-1)"
    assert eval(str(site)) == site
    assert site.at(layer=0, pos=None) == Site("z", layer=0, head=1)


def test_an_unknown_component_names_the_known_ones():
    with pytest.raises(SpecError, match=r"no site 'resid'; the sites are embed, resid_pre"):
        Site("resid")


@pytest.mark.parametrize(
    ("component", "narrow"),
    [("resid_pre", {"head": 1}), ("z", {"query": 1}), ("pattern", {"pos": 1}),
     ("embed", {"layer": 0}), ("mlp_out", {"key": 0})],
)  # fmt: skip
def test_fields_that_a_component_lacks_are_refused(component, narrow):
    name = next(iter(narrow))
    with pytest.raises(SpecError, match=f"Site '{component}' has no '{name}'; it is narrowed by "):
        Site(component, **narrow)


def test_heads_of_keys_and_values_are_key_value_heads():
    grouped = [c for c in COMPONENTS if Site(c).head_dimension == "kv_head"]
    assert grouped == ["k", "v"]


@pytest.mark.parametrize(
    ("wanted", "example", "found"),
    [
        (None, 0, (0, 1, 2, 3, 4)),
        (2, 0, (2,)),
        (-1, 0, (4,)),
        (-6, 0, ()),
        (5, 0, ()),
        ((0, -2), 0, (0, 3)),
        ("end", 0, (4,)),
        ("subject", 0, (1, 2)),
        ("subject", 1, ()),
    ],
)
def test_positions(wanted, example, found):
    assert positions(wanted, 5, SPANS, example) == found


def test_an_unknown_span_names_the_known_ones():
    with pytest.raises(SpecError, match=r"no span 'object'; they have: end, subject"):
        positions("object", 5, SPANS, 0)
