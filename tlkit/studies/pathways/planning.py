"""What a study would cost, before anything runs."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tlkit.engine.planning import flops_per_second, flops_per_token_layer
from tlkit.models.bridge import Parts
from tlkit.prompts.tokens import tokenizer_of
from tlkit.studies.answers import ask, how_asked, located
from tlkit.studies.pathways.settings import Settings, named_sets

EXPECTED, EXPECTED_SHORT = 16, 4
"""Tokens of an answer, and of a short one, that the plan reckons with."""


@dataclass(frozen=True)
class PathwaysPlan:
    """The cost of a study.

    Attributes:
        questions: Questions per set.
        prompt_tokens: Tokens of all prompts.
        new_tokens: Tokens of all answers, reckoned with 16 each, or 4 for short ones.
        lanes: Knockouts and patches, each of one example.
        token_layers: Tokens times blocks that are computed.
        plain_token_layers: The same with one full forward pass for each layer and example.
        probes: Probes that are trained.
        flops: Multiplications and additions, unembedding included.
        seconds: Estimated from the speed of a matrix product on this machine; probes not counted.
    """

    questions: dict[str, int]
    prompt_tokens: int
    new_tokens: int
    lanes: int
    token_layers: int
    plain_token_layers: int
    probes: int
    flops: float
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        sets = ", ".join(f"{count:,} of {name}" for name, count in self.questions.items())
        saved = self.plain_token_layers / max(1, self.token_layers)
        return (
            f"Questions: {sets}; {self.prompt_tokens:,} prompt tokens and about "
            f"{self.new_tokens:,} generated ones.\n"
            f"{self.lanes:,} knockouts and patches, {self.probes:,} probes.\n"
            f"{self.token_layers:,} token-layers ({saved:.1f} times fewer than one full pass per "
            f"layer), {self.flops / 1e12:.3g} TFLOP: about {self.seconds:,.0f} s."
        )


def plan(model: Any, qa: Any, **choices: Any) -> PathwaysPlan:
    """Reckon what `run` with the same choices would cost; the model is not run.

    Raises:
        SpecError: The request cannot be carried out.
    """
    named, parts = named_sets(qa), Parts(model)
    settings = Settings.of(choices).checked(parts.n_layers)
    tokenizer = tokenizer_of(model)
    chat, template = how_asked(tokenizer, settings.chat, settings.template)
    short = EXPECTED_SHORT if settings.template == "short" else EXPECTED
    new = min(short, settings.max_new_tokens)
    lengths, behind = [], []
    for questions in named.values():
        for question in questions:
            prompt = ask(tokenizer, question, template, chat=chat)
            answer = located(tokenizer, question, prompt, [], template=template)
            span = answer.exact_question
            lengths.append(len(prompt.ids))
            behind.append(len(prompt.ids) - (span.start if span else 0))
    counted = _counted(lengths, behind, new, parts.n_layers, settings)
    generated = new * len(lengths)
    flops = sum(counted[:2]) * flops_per_token_layer(parts, max(lengths) + new)
    flops += 2.0 * parts.d_model * parts.config.vocab_size * (generated + counted[2] * new)
    probes = 4 * settings.folds * len(settings.seeds) * parts.n_layers * len(named)
    return PathwaysPlan(
        {name: len(questions) for name, questions in named.items()}, sum(lengths), generated,
        counted[2], counted[0] + counted[1], counted[3],
        probes if "group" in settings.readings else 0, flops, flops / flops_per_second(parts),
    )  # fmt: skip


def _counted(
    lengths: Sequence[int], behind: Sequence[int], new: int, blocks: int, settings: Settings
) -> tuple[int, int, int, int]:
    """Token-layers of generating, of everything else, lanes, and what a plain loop takes."""
    generating = sum(length + new for length in lengths) * blocks
    full = generating
    work, lanes, plain = 0, 0, generating
    if "group" in settings.readings:
        lanes += 2 * len(lengths)
        work += full + sum(2 * (rows + new) for rows in behind) * blocks
        plain += full * (1 + 2 * blocks)
    if "intervention" in settings.readings:
        ks = settings.intervened(blocks)
        lanes += 5 * len(ks) * len(lengths)
        trunk = blocks + sum(blocks - k - 1 for k in ks[:-1])
        patched = sum(blocks - k for k in ks)
        cut = sum(2 * (rows + new) + new for rows in behind)
        work += 3 * full + cut * trunk + sum(rows + 2 * new for rows in behind) * patched
        plain += full * (1 + 5 * len(ks))
    return generating, work, lanes, plain
