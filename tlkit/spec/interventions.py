"""What can be done to an activation: small frozen records with one pure method, ``edit``."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tlkit.errors import SpecError
from tlkit.spec.directions import Direction
from tlkit.spec.sites import NEURONS, STREAM, Site

if TYPE_CHECKING:
    from torch import Tensor

Needs = Literal["nothing", "run", "mean", "resample"]


@dataclass(frozen=True)
class Intervention:
    """An edit of one site. Subclass it, as a frozen dataclass, to make your own.

    ``edit`` gets one example's activation at the site, already narrowed to the site's head and
    positions (see `Site` for shapes; a single head's axis is dropped), and returns its
    replacement, of the same shape. It must not write into its arguments.

    ``needs`` says what it wants as ``source``: ``"nothing"`` (None), ``"run"`` (the activation
    of the run named by an attribute ``source``, at the aligned positions), ``"mean"`` or
    ``"resample"`` (see `Ablate`).
    """

    site: Site

    def __init_subclass__(cls, **more: Any) -> None:
        """Every subclass checks its site, whatever else it does when it is made."""
        super().__init_subclass__(**more)
        own = cls.__dict__.get("__post_init__")

        def checked(self: "Intervention") -> None:
            if not isinstance(self.site, Site):
                raise SpecError(
                    f"{type(self).__name__} acts on a tk.Site, such as tk.Site('resid_pre'), not "
                    f"on {self.site!r}."
                )
            if own is not None:
                own(self)

        cls.__post_init__ = checked  # type: ignore[attr-defined]

    @property
    def needs(self) -> Needs:
        """What ``edit`` gets as its second argument."""
        return "run" if getattr(self, "source", None) else "nothing"

    def edit(self, act: "Tensor", source: "Tensor | None") -> "Tensor":
        """The activation that stands in place of ``act``."""
        raise SpecError(f"{type(self).__name__} must define edit(act, source).")


@dataclass(frozen=True)
class Patch(Intervention):
    """Activation patching: put in the activation of another run of the same example.

    With ``source="clean"`` into the corrupted run this is denoising, the other way round noising
    (Heimersheim & Nanda 2024, arXiv:2404.15255).
    """

    source: Literal["clean", "corrupted"] = "clean"

    def edit(self, act: "Tensor", source: "Tensor | None") -> "Tensor":
        """The source run's activation."""
        if source is None:
            raise SpecError(f"Patch at {self.site} has no source activation to put in.")
        return source


@dataclass(frozen=True, eq=False)
class Ablate(Intervention):
    """Remove what a site carries.

    Args:
        site: What to ablate.
        value: ``"zero"``; ``"mean"``: the mean over all tokens of ``reference``; ``"resample"``:
            the activation of another example of ``reference`` at the same position, drawn by
            ``seed`` (Chan et al. 2022, causal scrubbing).
        reference: Prompts that mean and resample draw from; the swept prompts if None.
        per_position: Mean at each position apart, instead of pooled over positions.
        seed: Chooses the other examples.
    """

    value: Literal["zero", "mean", "resample"] = "zero"
    reference: Any = None
    per_position: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.value not in ("zero", "mean", "resample"):
            raise SpecError(
                f"Ablate(value={self.value!r}) is not known; use 'zero', 'mean' or 'resample'."
            )

    @property
    def needs(self) -> Needs:
        """Nothing for zero, else the mean or another example's activation."""
        return "nothing" if self.value == "zero" else self.value

    def edit(self, act: "Tensor", source: "Tensor | None") -> "Tensor":
        """Zeros, or the mean, or the other example's activation."""
        return act.new_zeros(act.shape) if source is None else source.expand_as(act)


@dataclass(frozen=True)
class Skip(Intervention):
    """Leave a block, its attention or its MLP out: the stream passes unchanged.

    The site is ``resid_post`` (the whole block), ``attn_out`` or ``mlp_out``.
    """

    def __post_init__(self) -> None:
        if self.site.component not in ("resid_post", "attn_out", "mlp_out"):
            raise SpecError(
                f"Skip takes Site('resid_post') for a block, 'attn_out' or 'mlp_out', "
                f"not {self.site.component!r}."
            )

    def parts(self) -> tuple[Ablate, ...]:
        """What is set to zero: a block adds its attention's and its MLP's output, nothing else."""
        names = ("attn_out", "mlp_out")
        if self.site.component != "resid_post":
            names = (self.site.component,)
        return tuple(Ablate(Site(name, layer=self.site.layer, pos=self.site.pos)) for name in names)


@dataclass(frozen=True, eq=False)
class Project(Intervention):
    """Directional ablation: x - D^T D x (Arditi et al. 2024, arXiv:2406.11717, eq. 4)."""

    direction: "Direction | Tensor | None" = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "direction", _direction(self))

    def edit(self, act: "Tensor", source: "Tensor | None") -> "Tensor":
        """The activation without its part in the subspace."""
        assert isinstance(self.direction, Direction)
        basis = self.direction.vector.to(act)
        return act - (act @ basis.T) @ basis


@dataclass(frozen=True, eq=False)
class Steer(Intervention):
    """Activation addition: x + scale * unit direction (Turner et al. 2023, arXiv:2308.10248)."""

    direction: "Direction | Tensor | None" = None
    scale: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "direction", _direction(self))
        assert isinstance(self.direction, Direction)
        if self.direction.rank != 1:
            raise SpecError("Steer adds one direction; this one spans a subspace.")

    def edit(self, act: "Tensor", source: "Tensor | None") -> "Tensor":
        """The activation plus the scaled direction."""
        assert isinstance(self.direction, Direction)
        return act + self.scale * self.direction.vector[0].to(act)


def _direction(intervention: Any) -> Direction:
    """The intervention's direction as a `Direction`, or a sentence on why it cannot be."""
    name, site, given = type(intervention).__name__, intervention.site, intervention.direction
    if given is None:
        raise SpecError(f"{name} needs a direction: {name}(site, direction).")
    if site.component not in (*STREAM, *NEURONS):
        raise SpecError(f"{name} acts on streams and neurons; {site.component!r} is neither.")
    return given if isinstance(given, Direction) else Direction(given)
