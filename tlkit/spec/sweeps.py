"""Conditions (what is changed in one run) and sweeps (many conditions over named axes)."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from tlkit.errors import SpecError
from tlkit.spec.attention import EdgeIntervention
from tlkit.spec.interventions import Intervention

AnyIntervention = Intervention | EdgeIntervention


@dataclass(frozen=True, eq=False)
class Condition:
    """A name and the interventions that hold together in one run; none of them: the base run."""

    name: str
    interventions: tuple[AnyIntervention, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise SpecError(f"A condition's first argument is its name, a text, not {self.name!r}.")
        object.__setattr__(self, "interventions", tuple(self.interventions))
        for one in self.interventions:
            if not isinstance(one, (Intervention, EdgeIntervention)):
                raise SpecError(f"{one!r} is not an intervention, so no condition can hold it.")


class Sweep:
    """One intervention over named axes, or a plain list of conditions.

    An axis is the name of a field of the intervention or of its site: ``Sweep(Patch(Site("z")),
    layer=range(30), head=range(9))``. Axes keep the order in which they are given. ``given``
    interventions are held in every cell and in the base run that effects are measured from.

    Raises:
        SpecError: An axis names no field, is empty, or repeats a value.
    """

    def __init__(
        self,
        template: AnyIntervention,
        *,
        given: Iterable[AnyIntervention] = (),
        **axes: Iterable[Any],
    ) -> None:
        if not isinstance(template, (Intervention, EdgeIntervention)):
            raise SpecError(f"A sweep needs an intervention, such as tk.Patch; got {template!r}.")
        for name, values in axes.items():
            if isinstance(values, str) or not isinstance(values, Iterable):
                raise SpecError(f"The axis {name!r} needs several values, not {values!r}.")
        self.template = template
        self.given = tuple(given)
        self.axes = {name: tuple(map(_plain, values)) for name, values in axes.items()}
        _check_axes(template, self.axes)
        cells = [
            dict(zip(self.axes, cell, strict=True))
            for cell in itertools.product(*self.axes.values())
        ]
        self._conditions = [Condition(_name(cell), (_narrow(template, cell),)) for cell in cells]

    @classmethod
    def over(
        cls, conditions: Sequence[Condition], *, given: Iterable[AnyIntervention] = ()
    ) -> "Sweep":
        """A sweep over a plain list of conditions; the axis is called ``condition``."""
        names = [condition.name for condition in conditions]
        if not names or len(set(names)) < len(names):
            raise SpecError("Sweep.over needs conditions, each with a name of its own.")
        sweep = cls.__new__(cls)
        sweep.template = None
        sweep.given = tuple(given)
        sweep.axes = {"condition": tuple(names)}
        sweep._conditions = list(conditions)
        return sweep

    def conditions(self) -> list[Condition]:
        """Every cell, the last axis running fastest."""
        return list(self._conditions)

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""
        return tuple(len(values) for values in self.axes.values())

    def dimension(self, axis: str) -> str:
        """The name of an axis in results: ``kv_head`` where it counts key/value heads."""
        if axis == "head" and isinstance(self.template, Intervention):
            return self.template.site.head_dimension
        return {"layers": "layer", "heads": "head", "queries": "query", "keys": "key"}.get(
            axis, axis
        )


def _plain(value: Any) -> Any:
    """Numbers of numpy and torch as Python's; anything else as it is."""
    return value.item() if getattr(value, "ndim", None) == 0 else value


def _site_fields(template: AnyIntervention) -> tuple[str, ...]:
    return template.site.axes if isinstance(template, Intervention) else ()


def _own_fields(template: AnyIntervention) -> tuple[str, ...]:
    return tuple(f.name for f in fields(template) if f.name != "site")


def _check_axes(template: AnyIntervention, axes: dict[str, tuple[Any, ...]]) -> None:
    known = (*_site_fields(template), *_own_fields(template))
    for name, values in axes.items():
        if name not in known:
            raise SpecError(
                f"{type(template).__name__} cannot be swept over {name!r}; "
                f"its axes are {', '.join(known)}."
            )
        if not values:
            raise SpecError(f"The axis {name!r} of this sweep is empty.")
        if len({repr(v) for v in values}) < len(values):
            raise SpecError(f"The axis {name!r} of this sweep repeats a value.")


def _narrow(template: AnyIntervention, cell: dict[str, Any]) -> AnyIntervention:
    """The template at one cell; an axis of the site wins over one of the intervention."""
    on_site = {k: v for k, v in cell.items() if k in _site_fields(template)}
    own = {k: v for k, v in cell.items() if k not in on_site}
    if on_site and isinstance(template, Intervention):
        own["site"] = template.site.at(**on_site)
    return replace(template, **own)


def _name(cell: dict[str, Any]) -> str:
    return ", ".join(f"{axis} {value}" for axis, value in cell.items()) or "base"
