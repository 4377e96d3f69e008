"""Looking at one run: logit lens, direct logit attribution, and what heads attend to."""

from typing import Any

from tlkit.errors import SpecError
from tlkit.studies.attribution import direct_logit_attribution
from tlkit.studies.head_scores import head_scores
from tlkit.studies.logit_lens import logit_lens

__all__ = ["direct_logit_attribution", "head_scores", "logit_lens", "run"]

LENSES = {
    "logit_lens": logit_lens,
    "direct_logit_attribution": direct_logit_attribution,
    "head_scores": head_scores,
}


def run(model: Any, prompts: Any = None, lens: str = "logit_lens", **options: Any) -> Any:
    """Look at a model through one of the lenses.

    Args:
        model: A loaded model.
        prompts: `tk.Prompts`; `head_scores` makes its own.
        lens: ``"logit_lens"``, ``"direct_logit_attribution"`` or ``"head_scores"``.
        options: Of that function.

    Returns:
        Its dataset.

    Raises:
        SpecError: There is no such lens, or it has no prompts.
    """
    if lens not in LENSES:
        raise SpecError(f"There is no lens {lens!r}; the lenses are {', '.join(LENSES)}.")
    if lens == "head_scores":
        return head_scores(model, **options)
    if prompts is None:
        raise SpecError(f"{lens} needs prompts: make them with tk.Prompts.from_texts.")
    return LENSES[lens](model, prompts, **options)
