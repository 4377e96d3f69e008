"""Which two axes a map of a site has."""

from tlkit.errors import SpecError
from tlkit.spec.sites import EDGES, HEADS, Site

MAPS = {"positions": "pos", "heads": "head"}
"""What a map's second axis can be, and what that axis is called in results."""


def second_axis(site: str, by: str | None = None) -> str:
    """The axis beside the layers: ``"pos"`` or ``"head"``.

    Args:
        site: What is patched (see `tk.Site`).
        by: ``"positions"`` or ``"heads"``; if None, heads for sites that have them.

    Raises:
        SpecError: The site is unknown, or has no such axis.
    """
    place = Site(site)
    by = by or ("heads" if site in (*HEADS, *EDGES) else "positions")
    if MAPS.get(by) not in place.axes:
        can = " or ".join(repr(name) for name, axis in MAPS.items() if axis in place.axes)
        raise SpecError(f"Site {site!r} cannot be mapped by {by!r}, only by {can}.")
    return MAPS[by]
