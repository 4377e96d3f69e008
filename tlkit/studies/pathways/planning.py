"""What a study would cost, before anything runs."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tlkit.engine.planning import flops_per_second, flops_per_token_layer
from tlkit.models.bridge import Parts
from tlkit.models.outline import Outline
from tlkit.prompts.tokens import tokenizer_of
from tlkit.studies.answers import Answers, ask, how_asked, located
from tlkit.studies.pathways.costs import Cost, Sizes, cost
from tlkit.studies.pathways.giving import pairs_of
from tlkit.studies.pathways.sets import Asked, named_sets
from tlkit.studies.pathways.settings import Settings

EXPECTED, EXPECTED_SHORT = 16, 4
"""Tokens of an answer, and of a short one, that the plan reckons with."""
LETTERS = 4
"""Characters of a token, where there is no tokenizer to ask."""


@dataclass(frozen=True)
class PathwaysPlan:
    """The cost of a study.

    Attributes:
        questions: Answers per set.
        prompt_tokens: Tokens of all prompts.
        new_tokens: Tokens of all answers, reckoned with 16 each, or 4 for short ones.
        lanes: Knockouts, patches and scaled runs, each of one example.
        token_layers: Tokens times blocks that are computed.
        plain_token_layers: The same with one full forward pass for each layer and example.
        probes: Probes that are trained.
        flops: Multiplications and additions, unembedding included.
        seconds: Estimated from the speed of a matrix product on this machine; probes not counted.
        weight_bytes: What the weights take.
        tokens_known: Whether prompts were tokenised, or reckoned with 4 characters a token.
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
    weight_bytes: int = 0
    tokens_known: bool = True

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        sets = ", ".join(f"{count:,} of {name}" for name, count in self.questions.items())
        saved = self.plain_token_layers / max(1, self.token_layers)
        about = "" if self.tokens_known else "about "
        return (
            f"Questions: {sets}; {about}{self.prompt_tokens:,} prompt tokens and about "
            f"{self.new_tokens:,} generated ones.\n"
            f"{self.lanes:,} knockouts and patches, {self.probes:,} probes.\n"
            f"{self.token_layers:,} token-layers ({saved:.1f} times fewer than one full pass per "
            f"layer), {self.flops / 1e12:.3g} TFLOP: about {self.seconds:,.0f} s on this machine; "
            f"the weights take {self.weight_bytes / 1e9:.3g} GB."
        )


def plan(model: Any, qa: Any, **choices: Any) -> PathwaysPlan:
    """Reckon what `run` with the same choices would cost; the model is not run.

    Args:
        model: A loaded model; or a `tlkit.models.outline.outline` of a folder with a config.
        qa: See `run`.
        **choices: See `run`.

    Raises:
        SpecError: The request cannot be carried out.
    """
    named = named_sets(qa)
    about, weights, tokenizer = _about(model)
    settings = Settings.of(choices).checked(about.n_layers)
    short = EXPECTED_SHORT if settings.template == "short" else EXPECTED
    new = min(short, settings.max_new_tokens)
    whole, probed, lengths = Cost(), 0, []
    counts: dict[str, int] = {}
    for name, asked in named.items():
        sizes = _sizes(tokenizer, asked, settings, new, about.n_layers)
        whole += cost(sizes, settings)
        counts[name], probed = len(sizes.lengths), probed + sum(sizes.lengths)
        lengths += sizes.lengths
    flops = whole.token_layers * flops_per_token_layer(about, max(lengths) + new)
    flops += 2.0 * about.d_model * about.config.vocab_size * whole.unembedded
    generated = 0 if settings.answers == "given" else new * len(lengths)
    return PathwaysPlan(
        counts, probed, generated, whole.lanes, whole.token_layers, whole.plain, whole.probes,
        flops, flops / flops_per_second(about), weights * about.dtype.itemsize,
        tokenizer is not None,
    )  # fmt: skip


def _about(model: Any) -> tuple[Any, int, Any]:
    """A model's sizes, its number of weights, and its tokenizer if there is one."""
    if isinstance(model, Outline):
        return model, model.weights, model.tokenizer
    return Parts(model), sum(p.numel() for p in model.parameters()), tokenizer_of(model)


def _sizes(tokenizer: Any, asked: Asked, settings: Settings, new: int, blocks: int) -> Sizes:
    """Tokens of each prompt, and of its part from the exact question on."""
    if isinstance(asked, Answers):
        starts = [one.exact_question or one.asked for one in asked]
        lengths = [len(one.prompt_ids) for one in asked]
        behind = [n - span.start for n, span in zip(lengths, starts, strict=True)]
        return Sizes(lengths, behind, new, blocks)
    questions = list(asked)
    if settings.answers == "given":
        questions = [one for pair in pairs_of(asked, settings.seed) for one in (*pair, *pair)]
    rows = [_lengths(tokenizer, question, settings) for question in questions]
    return Sizes([row[0] for row in rows], [row[1] for row in rows], new, blocks)


def _lengths(tokenizer: Any, question: Any, settings: Settings) -> Sequence[int]:
    """Tokens of a prompt, and of what stands from its exact question on."""
    chat, template = how_asked(tokenizer, settings.chat, settings.template)
    span = question.exact_span
    if tokenizer is None:
        whole = template.replace("{question}", question.question)
        first = template.index("{question}") + (span[0] if span else 0)
        return -(-len(whole) // LETTERS), -(-(len(whole) - first) // LETTERS)
    prompt = ask(tokenizer, question, template, chat=chat)
    found = located(tokenizer, question, prompt, [], template=template).exact_question
    return len(prompt.ids), len(prompt.ids) - (found.start if found else 0)
