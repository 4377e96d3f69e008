"""A model built by hand, whose verdict on an answer reads the question or the answer."""

import numpy as np
import pytest
import torch

from tlkit.models.load import HookedTransformer
from tlkit.models.tiny import tiny_tokenizer
from tlkit.prompts.spans import Span
from tlkit.studies.pathways.examples import Example

WIDTH, SUBJECT, ANSWER, BIT, VERDICT, FILL = 32, 0, 1, 2, 3, 4
NOISE = slice(8, 12)
BLOCKS, COPIES = 3, 12
FILLERS = range(10, 40)


def token(kind, bit, copy):
    """The id of one of several tokens of a kind: question subjects and answers of two types."""
    return 100 + ((kind * 2 + bit) * COPIES) + copy


QUESTION_SUBJECT, PLAIN_SUBJECT, CONTRARY_ANSWER, TRUE_ANSWER = range(4)


def embeddings():
    """One vector a token, all of one length, so that norms scale every token alike.

    A question subject carries a bit; the answer that goes with it says half of the opposite. A
    plain subject carries nothing; the answer that goes with it carries its own bit.
    """
    rng = np.random.default_rng(0)
    table = np.zeros((512, WIDTH), dtype=np.float32)
    table[:, NOISE] = 0.1 * rng.normal(size=(512, 4))
    for bit in (0, 1):
        sign = 2 * bit - 1
        for copy in range(COPIES):
            table[token(QUESTION_SUBJECT, bit, copy), [SUBJECT, BIT]] = 1, sign
            table[token(PLAIN_SUBJECT, bit, copy), SUBJECT] = 1
            table[token(CONTRARY_ANSWER, bit, copy), [ANSWER, VERDICT]] = 1, -0.5 * sign
            table[token(TRUE_ANSWER, bit, copy), [ANSWER, VERDICT]] = 1, sign
    table[:, FILL] = np.sqrt(9 - (table**2).sum(1))
    return torch.tensor(table)


@pytest.fixture(scope="session")
def planted():
    """Block 1 lets an answer see the subject and add its bit; the other blocks do nothing."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=WIDTH, num_attention_heads=2, num_key_value_heads=2, intermediate_size=8,
        num_hidden_layers=BLOCKS, vocab_size=512, rope_theta=1e9, attn_implementation="eager",
        tie_word_embeddings=False,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.fill_(1.0 if parameter.ndim == 1 else 0.0)
    model.model.embed_tokens.weight.copy_(embeddings())
    attention, scale = model.model.layers[1].self_attn, 3 / np.sqrt(WIDTH)
    slow = 7  # of the first head's eight pairs of dimensions the one that hardly rotates
    attention.q_proj.weight[slow, ANSWER] = 12.0
    attention.k_proj.weight[slow, SUBJECT] = 12.0
    attention.v_proj.weight[0, BIT] = 1.0
    attention.o_proj.weight[VERDICT, 0] = 1.5 * scale
    return HookedTransformer.from_pretrained(model, tokenizer=tiny_tokenizer(), device="cpu")


@pytest.fixture(scope="session")
def planted_examples():
    """A function from a count and `reads(index)` to examples that read question or answer."""
    return _planted_examples


def _planted_examples(count, reads):
    rng = np.random.default_rng(1)
    found = []
    for index in range(count):
        bit, copy = int(rng.integers(2)), int(rng.integers(COPIES))
        question = reads(index)
        subject = token(QUESTION_SUBJECT if question else PLAIN_SUBJECT, bit, copy)
        said = token(CONTRARY_ANSWER if question else TRUE_ANSWER, bit, int(rng.integers(COPIES)))
        fill = rng.choice(list(FILLERS), 6).tolist()
        ids = (*fill[:2], subject, *fill[2:], said)
        exact, asked = Span(len(ids) - 1, len(ids)), f"question {index}"
        found.append(Example(index, ids, len(ids) - 1, (2,), (1,), exact, bool(bit), asked, ""))
    return found


@pytest.fixture(scope="session")
def asked(tiny_bridge):
    """Questions to the tiny Llama, about half of which it answers right: by what it says."""
    from tlkit.prompts.judging import plain
    from tlkit.prompts.qa import QA
    from tlkit.studies.answers import answer

    names = [f"{a}{b}" for a in ("Rome", "Paris", "Mary", "Tom", "cat", "dog") for b in "abcdefgh"]
    rows = [
        {"question": f"What is the {'capital' if i % 3 else 'drink'} of {name}?", "answer": "zzz",
         "subject": name, "relation": "capital" if i % 3 else "drink"}
        for i, name in enumerate(names)
    ]  # fmt: skip
    said = answer(tiny_bridge("llama"), QA.from_rows(rows), max_new_tokens=5, cache=False)
    for i, (row, one) in enumerate(zip(rows, said, strict=True)):
        words = [word for word in plain(one.text).split() if word not in plain(row["question"])]
        if i % 2 and words:
            row["answer"] = words[0]
    return QA.from_rows(rows, "tiny questions")
