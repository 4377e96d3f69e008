"""`tk.plan`: what a run will cost, before anything runs."""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch

from tlkit.engine.budget import bytes_of
from tlkit.engine.lanes import Lane, make_lane
from tlkit.engine.packed_group import token_layers
from tlkit.engine.packed_values import DEFAULT_BUDGET, GROUP_ROWS, run_bytes_per_token
from tlkit.engine.readout import Reading
from tlkit.engine.verified import share_run
from tlkit.engine.work import Work
from tlkit.models.bridge import Parts
from tlkit.models.outline import Outline
from tlkit.spec.callables import as_metrics
from tlkit.spec.sweeps import Sweep


@dataclass(frozen=True)
class Plan:
    """The cost of a run.

    Attributes:
        cells: Conditions.
        examples: Prompts.
        free: Conditions on one example that provably change nothing, and run nothing.
        missing: Those that an example lacks; their values are NaN.
        jobs: Those that are run.
        token_layers: Tokens times blocks that are computed, base and source runs included.
        plain_token_layers: The same for one full forward pass per cell and example.
        flops: Multiplications and additions of the weights and of attention.
        memory: Most bytes besides the weights.
        seconds: Estimated from the time of a matrix product of the model's own size on this
            machine (about a second is spent measuring it).
        engine: Which engine will run it.
    """

    cells: int
    examples: int
    free: int
    missing: int
    jobs: int
    token_layers: int
    plain_token_layers: int
    flops: float
    memory: int
    seconds: float
    engine: str

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        saved = self.plain_token_layers / max(1, self.token_layers)
        return (
            f"{self.cells:,} cells on {self.examples:,} prompts: {self.jobs:,} to run, "
            f"{self.free:,} free, {self.missing:,} absent.\n"
            f"{self.token_layers:,} token-layers ({saved:.1f} times fewer than one full pass per "
            f"cell), {self.flops / 1e12:.3g} TFLOP.\n"
            f"About {self.seconds:,.1f} s with the {self.engine} engine, and at most "
            f"{self.memory / 2**20:,.0f} MiB besides the weights."
        )


def plan(
    model: Any,
    prompts: Any,
    sweep: Sweep,
    metrics: Any,
    *,
    on: Literal["clean", "corrupted"] | None = None,
    engine: str = "packed",
    budget: int | str | None = None,
) -> Plan:
    """What `tk.run` with the same arguments will cost; nothing of it is run.

    A model that has not run yet is tried on a few tokens, to see which engine serves it.

    Raises:
        SpecError: The request cannot be carried out.
    """
    several = as_metrics(metrics)
    work = Work(model, prompts, sweep, several, on)
    parts, sequences = work.parts, work.sequences
    jobs = work.jobs()
    lanes = [make_lane(i, job.example, job.worked, sequences) for i, job in enumerate(jobs)]
    lengths = {run: [len(ids) for ids in rows] for run, rows in sequences.runs.items()}
    base = lengths[sequences.base]
    once = sum(sum(rows) for rows in lengths.values()) * parts.n_layers
    full = sum(base) * len(work.conditions) * parts.n_layers
    estimated = engine in ("gradient", "verified")
    if estimated:
        work.backend(engine, None)  # refuses what has no estimate
        # A forward pass, and for each metric a backward pass that costs about two.
        once += sum(base) * parts.n_layers * (1 + 2 * len(several))
    packed = work.will_pack("packed" if estimated else engine)
    share = share_run(engine, len({job.cell for job in jobs}))
    own = once + round(share * (
        sum(token_layers(lane, parts.n_layers) for lane in lanes)
        if packed
        else sum(lane.stop for lane in lanes) * parts.n_layers
    ))  # fmt: skip
    flops = own * flops_per_token_layer(parts, max(base))
    for metric in several:
        reading = Reading(metric, sequences, sequences.base, parts.device)
        width = parts.config.vocab_size if reading.vocabulary is None else len(reading.vocabulary)
        flops += 2.0 * share * len(lanes) * reading.width * parts.d_model * width
    statuses = [worked.status for row in work.worked for worked in row]
    return Plan(
        cells=len(work.conditions), examples=len(prompts), free=statuses.count("free"),
        missing=statuses.count("missing"), jobs=len(jobs), token_layers=own,
        plain_token_layers=full, flops=flops,
        memory=_memory(parts, lanes, sum(base), bytes_of(budget) or DEFAULT_BUDGET),
        seconds=flops / flops_per_second(parts),
        engine=engine if estimated else "packed" if packed else "reference",
    )  # fmt: skip


def flops_per_token_layer(parts: Parts | Outline, length: int) -> float:
    """Operations of one token in one block: two per weight, and attention over ``length`` keys."""
    weights = sum(p.numel() for p in parts.blocks[0].parameters() if p.ndim > 1)
    return 2.0 * weights + 4.0 * length * parts.n_heads * parts.d_head


def _memory(parts: Parts, lanes: list[Lane], tokens: int, budget: int) -> int:
    recorded = min(2 * tokens * run_bytes_per_token(parts), budget // 2)
    rows = min(sum(lane.rows for lane in lanes), GROUP_ROWS)
    return recorded + rows * parts.d_model * parts.dtype.itemsize * 3


def flops_per_second(parts: Parts | Outline) -> float:
    """Speed of a product of 1 024 tokens with a square matrix of the model's width."""
    with torch.no_grad():
        rows = torch.ones(1024, parts.d_model, dtype=parts.dtype, device=parts.device)
        width = max(parts.d_model, 4 * parts.d_model)
        weight = torch.ones(width, parts.d_model, dtype=parts.dtype, device=parts.device)
        counted = [seconds for seconds in _timed(rows, weight)]
    per_product = sorted(counted)[len(counted) // 2]
    # Blocks reach about four fifths of what bare products do.
    return 0.8 * 2.0 * rows.numel() * width / per_product


def _timed(rows: torch.Tensor, weight: torch.Tensor) -> Iterator[float]:
    deadline = time.perf_counter() + 1.0
    while True:
        started = time.perf_counter()
        torch.nn.functional.linear(rows, weight).sum().item()
        now = time.perf_counter()
        yield now - started
        if now > deadline:
            return
