"""What a model itself says of an answer: its logits, and whether it calls it true."""

import numpy as np
import torch

from tlkit.engine.cumulative import cumulative
from tlkit.engine.readout import logits_of
from tlkit.engine.sequences import Sequences
from tlkit.engine.states import states
from tlkit.prompts.prompts import Prompts
from tlkit.prompts.tokens import answer_tokens, tokenize
from tlkit.spec.metrics import AnswerProb
from tlkit.studies.answers import how_asked
from tlkit.studies.pathways.examples import sequences_of
from tlkit.studies.pathways.task import Task

P_TRUE = (
    "Question: {question}\nProposed answer: {answer}\nIs the proposed answer true or false?\n"
    "The proposed answer is:"
)
"""After Kadavath et al. 2022 (arXiv:2207.05221), with words in place of letters."""
WORDS = ("True", "False")


def token_logits(task: Task) -> list[np.ndarray]:
    """The logits with which the exact answer's tokens were predicted, per example ``[token]``."""
    parts, examples = task.parts, task.examples
    before = [tuple(range(one.exact.start - 1, one.last)) for one in examples]
    place = ("resid_post", parts.n_layers - 1)
    found = states(
        parts, sequences_of(examples), before, [place], {}, packed=task.packed, budget=task.budget
    )["base"][place]
    logits = []
    with torch.no_grad():
        for one, stream in zip(examples, found, strict=True):
            said = torch.tensor(one.ids[one.exact.start :], device=stream.device)
            every = logits_of(parts, stream, None)
            logits.append(every.gather(1, said[:, None])[:, 0].cpu().numpy())
    return logits


def p_true(task: Task) -> np.ndarray:
    """P(True) / (P(True) + P(False)) behind a question about each answer, ``[example]``."""
    tokenizer, settings = task.model.tokenizer, task.settings
    chat, _ = how_asked(tokenizer, settings.chat, settings.template)
    prompts = []
    for one in task.examples:
        answer = task.answers.items[one.index]
        text = P_TRUE.format(question=answer.question.question, answer=answer.text.strip())
        thinking = {"enable_thinking": False} if chat else {}
        prompts.append(tokenize(tokenizer, text, chat=chat, **thinking))
    found = []
    for word in WORDS:
        rows = [answer_tokens(tokenizer, prompt, word, "P(True)") for prompt in prompts]
        asked = Prompts.from_tokens([list(prompt.ids) for prompt in prompts], answers=rows)
        sequences = Sequences(asked, "clean", forced=True)
        found.append(
            cumulative(
                task.parts, sequences, AnswerProb(), [], [0], packed=task.packed,
                budget=task.budget,
            ).base
        )  # fmt: skip
    true, false = np.stack(found).astype(np.float64)
    return true / np.maximum(true + false, np.finfo(np.float32).tiny)
