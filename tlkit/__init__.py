"""Mechanistic interpretability of language models: exact studies on TransformerLens.

Names are loaded when first used, so that ``import tlkit`` costs milliseconds.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tlkit.engine.run import run
    from tlkit.errors import EngineError, SpecError, TlkitError
    from tlkit.models.load import HookedTransformer
    from tlkit.plots import plot, report
    from tlkit.prompts.prompts import Prompts
    from tlkit.results.files import open, save
    from tlkit.spec.attention import Knockout, ScaleEdges
    from tlkit.spec.directions import Direction
    from tlkit.spec.interventions import Ablate, Intervention, Patch, Project, Skip, Steer
    from tlkit.spec.metrics import KL, AnswerProb, AnswerRank, LogitDiff, Metric
    from tlkit.spec.sites import Site
    from tlkit.spec.sweeps import Condition, Sweep

# Where each public name lives. The imports above say the same to type checkers, and `__all__` is
# what they take as public; a test holds the three together.
_HOME = {
    "tlkit.engine.run": ("run",),
    "tlkit.errors": ("EngineError", "SpecError", "TlkitError"),
    "tlkit.models.load": ("HookedTransformer",),
    "tlkit.plots": ("plot", "report"),
    "tlkit.prompts.prompts": ("Prompts",),
    "tlkit.results.files": ("open", "save"),
    "tlkit.spec.attention": ("Knockout", "ScaleEdges"),
    "tlkit.spec.directions": ("Direction",),
    "tlkit.spec.interventions": ("Ablate", "Intervention", "Patch", "Project", "Skip", "Steer"),
    "tlkit.spec.metrics": ("AnswerProb", "AnswerRank", "KL", "LogitDiff", "Metric"),
    "tlkit.spec.sites": ("Site",),
    "tlkit.spec.sweeps": ("Condition", "Sweep"),
}

__all__ = [
    "KL",
    "Ablate",
    "AnswerProb",
    "AnswerRank",
    "Condition",
    "Direction",
    "EngineError",
    "HookedTransformer",
    "Intervention",
    "Knockout",
    "LogitDiff",
    "Metric",
    "Patch",
    "Project",
    "Prompts",
    "ScaleEdges",
    "Site",
    "Skip",
    "SpecError",
    "Steer",
    "Sweep",
    "TlkitError",
    "open",
    "plot",
    "report",
    "run",
    "save",
]

_MODULE = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value = _version()
    elif name in _MODULE:
        value = getattr(import_module(_MODULE[name]), name)
    else:
        raise AttributeError(f"module 'tlkit' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE, "__version__"})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("tlkit")
    except PackageNotFoundError:  # a checkout that was never installed
        return "0+unknown"
