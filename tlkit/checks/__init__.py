"""What a model and its sites promise, tested on the model at hand."""

from tlkit.checks.check import Check
from tlkit.checks.suite import run

__all__ = ["Check", "run"]
