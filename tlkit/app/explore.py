"""`tk.explore`: the patching explorer as a widget of a notebook."""

import weakref
from pathlib import Path
from typing import Any, Literal

import anywidget

from tlkit.app.kernel import Kernel
from tlkit.app.state import METRICS, SITES, State
from tlkit.engine.refusals import check_prompts
from tlkit.errors import SpecError
from tlkit.prompts.prompts import Prompts
from tlkit.spec.sweeps import Condition
from tlkit.studies import patching

_STATIC = Path(__file__).parent / "static"


class Explorer(anywidget.AnyWidget):
    """The widget; make it with `tk.explore`.

    All that its JavaScript does is to draw, and to send messages that a `Kernel` answers.
    """

    _esm = (_STATIC / "explorer.js").read_text(encoding="utf-8")
    _css = (_STATIC / "explorer.css").read_text(encoding="utf-8")

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self._kernel: Kernel | None = kernel
        own = weakref.ref(self)  # the widget must not hold itself

        def answer(widget: Any, message: Any, buffers: Any) -> None:
            explorer = own()
            if explorer is not None and explorer._kernel is not None and isinstance(message, dict):
                explorer.send(explorer._kernel.answer(message))

        self.on_msg(answer)

    @property
    def kernel(self) -> Kernel:
        """What answers.

        Raises:
            SpecError: The widget is closed.
        """
        if self._kernel is None:
            raise SpecError("This explorer is closed; make another with tk.explore.")
        return self._kernel

    @property
    def state(self) -> State:
        """What is on the screen."""
        return self.kernel.state

    @property
    def prompts(self) -> Prompts:
        """The pair on the screen, as it was edited."""
        return self.state.prompts

    @property
    def condition(self) -> Condition:
        """What is changed on the screen, for `tk.run`, `tk.capture` or `tk.generate`."""
        return self.state.condition

    @property
    def dataset(self) -> Any:
        """The map on the screen as `tk.patching.run` gives it, every cell exact; for `tk.save`."""
        state = self.state
        return patching.run(
            self.kernel.model, state.prompts, state.site, METRICS[state.metric](),
            by="heads" if state.axis == "head" else "positions", on=state.base,
        )  # fmt: skip

    def close(self) -> None:
        """Take the widget off the page and free what it holds."""
        self._kernel = None
        super().close()


def explore(
    model: Any,
    prompts: Any,
    *,
    site: str = "resid_pre",
    metric: Literal["logit_diff", "answer_prob", "kl"] | None = None,
    direction: Literal["denoise", "noise"] = "denoise",
    example: int = 0,
) -> Explorer:
    """Open the patching explorer: click a cell of the map to see what the patch does.

    Args:
        model: A loaded model that the packed engine serves.
        prompts: Pairs (`tk.Prompts.from_pairs`).
        site: What the map patches at first: ``resid_pre``, ``attn_out``, ``mlp_out``, ``z`` ….
        metric: What it measures at first; if None, the logit difference if it can be read off the
            pair, else the answer's probability, else KL.
        direction: ``"denoise"`` puts clean into corrupted, ``"noise"`` the other way round.
        example: The pair that is shown at first.

    Returns:
        The widget, to stand last in a cell. Its ``dataset``, ``condition`` and ``prompts`` are
        what is on the screen.

    Raises:
        SpecError: The prompts are no pairs, the model is not served, or a choice does not exist.
    """
    return Explorer(Kernel(model, first_state(model, prompts, site, metric, direction, example)))


def first_state(
    model: Any, prompts: Any, site: str, metric: str | None, direction: str, example: int
) -> State:
    """What the explorer shows at first (see `explore`).

    Raises:
        SpecError: The prompts are no pairs, or a choice does not exist.
    """
    check_prompts(model, prompts)
    if prompts.corrupted is None:
        raise SpecError("The explorer needs pairs: make them with tk.Prompts.from_pairs.")
    state = State(tuple(prompts))
    state = state.shown(site=site, direction=direction, example=example)
    return state.shown(metric=metric or usual_metric(prompts))


def usual_metric(prompts: Prompts) -> str:
    """The first metric that can be read off every pair."""
    for name, make in METRICS.items():
        try:
            make().vocabulary(prompts)
        except SpecError:
            continue
        return name
    return next(reversed(METRICS))


__all__ = ["SITES", "Explorer", "explore", "first_state", "usual_metric"]
