"""Mechanistic interpretability of language models: exact studies on TransformerLens.

Names are loaded when first used, so that ``import tlkit`` costs milliseconds.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tlkit import plots
    from tlkit.app.explore import explore
    from tlkit.engine.capture import capture
    from tlkit.engine.generating import generate
    from tlkit.engine.on_ray import Ray
    from tlkit.engine.planning import Plan, plan
    from tlkit.engine.run import run
    from tlkit.errors import EngineError, SpecError, TlkitError
    from tlkit.models.load import HookedTransformer
    from tlkit.plots import plot, report
    from tlkit.prompts.prompts import Prompts
    from tlkit.prompts.qa import QA
    from tlkit.results.files import open, save
    from tlkit.spec.attention import Knockout, ScaleEdges
    from tlkit.spec.directions import Direction
    from tlkit.spec.insertions import Insert
    from tlkit.spec.interventions import Ablate, Intervention, Patch, Project, Skip, Steer
    from tlkit.spec.metrics import KL, AnswerProb, AnswerRank, LogitDiff
    from tlkit.spec.readout import Metric
    from tlkit.spec.sites import Site
    from tlkit.spec.sweeps import Condition, Sweep
    from tlkit.studies import (
        ablation,
        abliteration,
        conditions,
        layer_probes,
        lenses,
        patching,
        pathways,
        variance,
    )
    from tlkit.studies.probes import Probe

# Where each public name lives. The imports above say the same to type checkers, and `__all__` is
# what they take as public; a test holds the three together.
_HOME = {
    "tlkit": ("plots",),
    "tlkit.app.explore": ("explore",),
    "tlkit.engine.capture": ("capture",),
    "tlkit.engine.generating": ("generate",),
    "tlkit.engine.on_ray": ("Ray",),
    "tlkit.engine.planning": ("Plan", "plan"),
    "tlkit.engine.run": ("run",),
    "tlkit.errors": ("EngineError", "SpecError", "TlkitError"),
    "tlkit.models.load": ("HookedTransformer",),
    "tlkit.plots": ("plot", "report"),
    "tlkit.prompts.prompts": ("Prompts",),
    "tlkit.prompts.qa": ("QA",),
    "tlkit.results.files": ("open", "save"),
    "tlkit.spec.attention": ("Knockout", "ScaleEdges"),
    "tlkit.spec.directions": ("Direction",),
    "tlkit.spec.insertions": ("Insert",),
    "tlkit.spec.interventions": ("Ablate", "Intervention", "Patch", "Project", "Skip", "Steer"),
    "tlkit.spec.metrics": ("AnswerProb", "AnswerRank", "KL", "LogitDiff"),
    "tlkit.spec.readout": ("Metric",),
    "tlkit.spec.sites": ("Site",),
    "tlkit.spec.sweeps": ("Condition", "Sweep"),
    "tlkit.studies": (
        "ablation",
        "abliteration",
        "conditions",
        "layer_probes",
        "lenses",
        "patching",
        "pathways",
        "variance",
    ),
    "tlkit.studies.probes": ("Probe",),
}

__all__ = [
    "KL",
    "QA",
    "Ablate",
    "AnswerProb",
    "AnswerRank",
    "Condition",
    "Direction",
    "EngineError",
    "HookedTransformer",
    "Insert",
    "Intervention",
    "Knockout",
    "LogitDiff",
    "Metric",
    "Patch",
    "Plan",
    "Probe",
    "Project",
    "Prompts",
    "Ray",
    "ScaleEdges",
    "Site",
    "Skip",
    "SpecError",
    "Steer",
    "Sweep",
    "TlkitError",
    "ablation",
    "abliteration",
    "capture",
    "conditions",
    "explore",
    "generate",
    "layer_probes",
    "lenses",
    "open",
    "patching",
    "pathways",
    "plan",
    "plot",
    "plots",
    "report",
    "run",
    "save",
    "variance",
]

_MODULE = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value = _version()
    elif name in _MODULE:
        value = _found(_MODULE[name], name)
    else:
        raise AttributeError(f"module 'tlkit' has no attribute {name!r}")
    globals()[name] = value
    return value


def _found(home: str, name: str) -> Any:
    """A name of a module, or a module of a package."""
    module = None if home == __name__ else import_module(home)
    if module is not None and hasattr(module, name):
        return getattr(module, name)
    return import_module(f"{home}.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE, "__version__"})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("tlkit")
    except PackageNotFoundError:  # a checkout that was never installed
        return "0+unknown"
