"""Which maps a site has."""

import pytest

from tlkit.errors import SpecError
from tlkit.spec.sites import COMPONENTS
from tlkit.studies.maps import second_axis

HEADS_ALONE = ("pattern", "attn_scores")
BOTH = ("z", "q", "k", "v")


@pytest.mark.parametrize("site", COMPONENTS)
def test_heads_where_a_site_has_them_else_positions(site):
    assert second_axis(site) == ("head" if site in (*HEADS_ALONE, *BOTH) else "pos")
    if site in BOTH:
        assert [second_axis(site, by) for by in ("positions", "heads")] == ["pos", "head"]
        return
    wrong, right = ("positions", "heads") if site in HEADS_ALONE else ("heads", "positions")
    with pytest.raises(SpecError, match=f"Site '{site}' cannot be mapped by '{wrong}', only by "):
        second_axis(site, wrong)
    assert second_axis(site, right) == second_axis(site)


def test_unknown_words_are_refused():
    with pytest.raises(SpecError, match="There is no site 'residual'"):
        second_axis("residual")
    with pytest.raises(SpecError, match="by 'layers', only by 'positions' or 'heads'"):
        second_axis("z", "layers")
