"""Batches of greedy continuations against Hugging Face's own generation, one prompt at a time."""

import pytest
import torch

from tlkit.engine.generate import greedy
from tlkit.errors import SpecError
from tlkit.models.bridge import unbridged
from tlkit.models.tiny import FAMILIES

PROMPTS = [[0, 40, 41], [0, 300, 17, 290, 12, 33, 90, 91], [0, 50], [0, 7, 8, 9, 10, 11, 12], [0]]
NEW = 9


def alone(model, ids, new=NEW):
    """Hugging Face's greedy continuation of one prompt."""
    with unbridged(model) as hf, torch.no_grad():
        row = torch.tensor([ids])
        out = hf.generate(
            row, attention_mask=torch.ones_like(row), do_sample=False, max_new_tokens=new,
            eos_token_id=None, pad_token_id=2,
        )  # fmt: skip
    return out[0, len(ids) :].tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_batch_gives_what_each_prompt_gives_alone(tiny_bridge, family):
    model = tiny_bridge(family)
    assert greedy(model, PROMPTS, max_new_tokens=NEW) == [alone(model, ids) for ids in PROMPTS]


def test_rows_end_each_at_their_own_stop(tiny_bridge):
    model = tiny_bridge("llama")
    whole = greedy(model, PROMPTS, max_new_tokens=NEW)
    stop = whole[1][4]
    cut = [row[: row.index(stop)] if stop in row else row for row in whole]
    assert greedy(model, PROMPTS, max_new_tokens=NEW, stop=[stop]) == cut
    assert len({len(row) for row in cut}) > 1


def test_rows_end_where_they_are_told_to(tiny_bridge):
    model = tiny_bridge("qwen3")
    whole = greedy(model, PROMPTS, max_new_tokens=NEW)
    limits = {row[0]: 1 + at for at, row in enumerate(whole)}
    found = greedy(model, PROMPTS, max_new_tokens=NEW, ended=lambda row: len(row) >= limits[row[0]])
    assert found == [row[: limits[row[0]]] for row in whole]


def test_small_batches_give_the_same_and_tell_what_is_done(tiny_bridge):
    model = tiny_bridge("gpt2")
    told, steps = {}, []
    found = greedy(
        model, PROMPTS, max_new_tokens=4, batch_tokens=8,
        finished=lambda batch, rows: told.update(zip(batch, rows, strict=True)),
        progress=lambda done, total: steps.append((done, total)),
    )  # fmt: skip
    assert found == greedy(model, PROMPTS, max_new_tokens=4)
    assert [told[i] for i in range(len(PROMPTS))] == found
    assert steps[-1] == (5, 5)
    assert len(steps) > 2


def test_the_model_is_left_as_it_was(tiny_bridge):
    model = tiny_bridge("mistral")
    row = torch.tensor([PROMPTS[1]])
    before = model(row)
    greedy(model, PROMPTS, max_new_tokens=3)
    assert torch.equal(model(row), before)


def test_no_prompts_and_bad_requests(tiny_bridge):
    model = tiny_bridge("gpt2")
    assert greedy(model, [], max_new_tokens=3) == []
    with pytest.raises(SpecError, match="prompt without tokens"):
        greedy(model, [[1], []], max_new_tokens=3)
    with pytest.raises(SpecError, match="max_new_tokens is 0"):
        greedy(model, [[1]], max_new_tokens=0)
