"""What a study would cost, before anything runs."""

from dataclasses import asdict, dataclass
from typing import Any

from tlkit.engine.planning import Plan, flops_per_second, flops_per_token_layer
from tlkit.engine.planning import plan as plan_sweep
from tlkit.studies.ablation.behaviour import check_room
from tlkit.studies.ablation.cells import branch_cells, sweep_of
from tlkit.studies.ablation.inputs import Subject, subjects
from tlkit.studies.ablation.measures import metrics_of
from tlkit.studies.ablation.settings import BRANCHES, Settings


@dataclass(frozen=True)
class AblationPlan:
    """The cost of a study.

    Attributes:
        sweeps: What each model's sweep costs (see `tk.plan`).
        continuations: Continuations of all models, unchanged ones included.
        new_tokens: Most tokens of all of them.
        seconds: Sweeps and continuations together, estimated on this machine; continuations are
            reckoned at full length.
    """

    sweeps: dict[str, Plan]
    continuations: int
    new_tokens: int
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"{name}: {one}" for name, one in self.sweeps.items()]
        if self.continuations:
            lines.append(
                f"{self.continuations:,} continuations of at most {self.new_tokens:,} new tokens."
            )
        return "\n".join([*lines, f"About {self.seconds:,.1f} s in all."])


def plan(
    models: Any, prompts: Any, *, value: str = "zero", components: Any = BRANCHES,
    windows: int = 1, reference: Any = None, pooled: bool = True, metrics: Any = None,
    behaviour: Any = None, max_new_tokens: int = 32, chat: bool = False, seed: int = 0,
    engine: str = "packed", budget: int | str | None = None,
) -> AblationPlan:  # fmt: skip
    """What `run` with the same arguments will cost; nothing of it is run.

    Raises:
        SpecError: The request cannot be carried out.
    """
    settings = Settings.of(
        components, behaviour, metrics, value=value, windows=windows, pooled=pooled,
        max_new_tokens=max_new_tokens, seed=seed, engine=engine,
    )  # fmt: skip
    sweeps, count, seconds = {}, 0, 0.0
    for subject in subjects(models, prompts, reference, settings, chat=chat):
        check_room(subject, settings)
        sweep = sweep_of(settings, subject.parts, subject.reference)
        measured = metrics_of(settings, subject.prompts)
        cost = sweeps[subject.name] = plan_sweep(
            subject.model, subject.prompts, sweep, measured, engine=engine, budget=budget
        )
        seconds += cost.seconds
        if settings.behaviour:
            cells = 1 + len(branch_cells(settings, subject.parts.n_layers, subject.reference))
            count += cells * len(subject.prompts)
            seconds += cells * _continuing(subject, settings)
    return AblationPlan(sweeps, count, count * max_new_tokens, seconds)


def _continuing(subject: Subject, settings: Settings) -> float:
    """Seconds of continuing every prompt once: prompts and new tokens go through the model."""
    parts, lengths = subject.parts, [len(ids) for ids in subject.prompts.clean]
    new = settings.max_new_tokens
    tokens = sum(length + new for length in lengths)
    flops = tokens * parts.n_layers * flops_per_token_layer(parts, max(lengths) + new)
    flops += 2.0 * parts.d_model * parts.config.vocab_size * new * len(lengths)
    return flops / flops_per_second(parts)
