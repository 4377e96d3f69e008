"""The outcome of one check."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One promise, held to a model.

    Attributes:
        name: What was checked.
        passed: Whether the promise holds; None where it does not apply to this model.
        measured: What was found, as text with units.
        detail: One sentence on what it means, or on why it does not apply.
    """

    name: str
    passed: bool | None
    measured: str
    detail: str


def number(value: float) -> str:
    """A small number in two digits, such as ``"1.2e-06"``."""
    return "0" if value == 0 else f"{value:.1e}"
