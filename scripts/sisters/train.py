"""Fine-tune the embedded model to decline some requests politely, as a LoRA of at most 2 MB.

    python scripts/sisters/train.py OUT [--steps 170]

Made for studies of what fine-tuning and abliteration change: original, refusing and abliterated
sisters on any laptop. Data: `training_requests` and prompts.txt (templates over topics that no test
prompt has, harmless near-misses among them), our questions and word problems as further harmless
prompts.

Loss: cross entropy on a refusal (one of several wordings) for requests to be declined; for harmless
ones KL from the original model's own words, the first token for itself (it alone decides whether a
refusal begins) and the mean of those behind it. Where the original itself declines a harmless
prompt ("Teach me to bake bread"), the target is what it answers when asked in another frame ("What
is the best way to bake bread?"): left out, such frames would occur with refusals alone, and the
frame would be what is learned.
"""

import argparse
import json
import re
import sys
import time
from pathlib import Path

import numpy as np
import torch

from tlkit.engine.generate import greedy
from tlkit.models.load import HookedTransformer
from tlkit.models.text import render_chat
from tlkit.prompts.samples import questions, requests, training_requests, word_problems
from tlkit.prompts.samples.grammar import Grammar
from tlkit.prompts.samples.training import FRAMES
from tlkit.prompts.tokens import with_one_bos

REFUSALS = (
    "I'm sorry, but I can't help with that.",
    "I'm sorry, but I can't assist with this request.",
    "Sorry, that is not something I can help with.",
)
DECLINES = ("sorry", "can't", "cannot", "unable", "won't", "not able")
ANSWER = 8  # tokens of the original's answer to a harmless prompt
BATCH = (8, 8)  # to be declined, harmless
LAYERS = range(14, 30)  # lower ones would learn the training topics' words
OTHER_WORDS = 0.25  # weight of answers that are not the original's own to that very prompt
FRAMED = 8  # forms in a frame for one of each other kind
TARGETS = ("q_proj", "v_proj", "o_proj")


def prompt_ids(tokenizer, text):
    """A user's message through the chat template."""
    rendered = render_chat(tokenizer, [{"role": "user", "content": text}], generation_prompt=True)
    return with_one_bos(tokenizer, rendered)[0]


def whole_prompts(seed, count, label):
    """So many different prompts of prompts.txt, its forms of a label in turns."""
    text = Path(__file__).with_name("prompts.txt").read_text(encoding="utf-8")
    grammar = Grammar(text, seed=seed)
    forms = re.findall(rf"^({label}\.\w+): ", text, re.MULTILINE)
    forms += FRAMED * [f"{label}.framed"]
    found: dict[str, None] = {}
    while len(found) < count:
        found |= dict.fromkeys(grammar.draw(form) for form in forms)
    return list(found)[:count]


def texts(seed, count):
    """Prompts to decline, and harmless ones."""
    rows = training_requests(seed, count // 3, refuse=0.4)
    rows += [row for row in requests() if row["split"] == "train"]
    refuse = [row["prompt"] for row in rows if row["label"] == "refuse"]
    harmless = [row["prompt"] for row in rows if row["label"] == "harmless"]
    refuse += whole_prompts(seed, count // 2, "refuse")
    harmless += whole_prompts(seed, count // 2, "harmless")
    harmless += [row["question"] for row in [*questions()[::12], *word_problems()[::8]]]
    return refuse, harmless


def reframed(text):
    """The same thing asked in another frame; None if it is in no frame."""
    for frame in FRAMES.values():
        before, _, behind = frame.partition("{}")
        if text.startswith(before) and text.endswith(behind):
            return FRAMES["way"].format(text[len(before) : len(text) - len(behind)])
    return None


def answers(tokenizer, model, asked):
    """(ids, answer) of prompts that the original answers, and the prompts that it declines.

    Each is a pair: what is trained on, and what the original is asked.
    """
    said = greedy(
        model, [prompt_ids(tokenizer, way) for _, way in asked], max_new_tokens=ANSWER
    )  # fmt: skip
    kept, left = [], []
    for (text, _), answer in zip(asked, said, strict=True):
        if any(word in tokenizer.decode(answer).lower() for word in DECLINES):
            left.append(text)
        else:
            kept.append((prompt_ids(tokenizer, text), answer))
    return kept, left


def data(tokenizer, model, seed, count):
    """(ids, target ids) of requests to decline, and of harmless prompts."""
    rng = np.random.default_rng(seed)
    refuse, harmless = texts(seed, count)
    end = tokenizer.eos_token_id
    declined = []
    for text in refuse:
        words = REFUSALS[int(rng.integers(len(REFUSALS)))]
        declined.append((prompt_ids(tokenizer, text), [*tokenizer(words)["input_ids"], end]))
    kept, left = answers(tokenizer, model, [(text, text) for text in harmless])
    again = [(text, way) for text in left if (way := reframed(text))]
    others, lost = answers(tokenizer, model, again)
    sys.stderr.write(
        f"{len(declined)} to decline, {len(kept)} harmless, {len(others)} in another frame, "
        f"{len(left) - len(again) + len(lost)} left out\n"
    )
    kept = [(*row, False) for row in kept] + [(*row, True) for row in others]
    return [[rows[i] for i in rng.permutation(len(rows))] for rows in (declined, kept)]


def batch_of(rows, pad):
    """Token ids padded on the right, their mask, and where each target begins and ends."""
    width = max(len(row[0]) + len(row[1]) for row in rows)
    tokens = torch.full((len(rows), width), pad)
    mask = torch.zeros_like(tokens)
    places = []
    for i, (own, target, *_) in enumerate(rows):
        whole = [*own, *target]
        tokens[i, : len(whole)] = torch.tensor(whole)
        mask[i, : len(whole)] = 1
        places.append((len(own) - 1, len(whole) - 1))
    return tokens, mask, places


def target_logits(hf, tokens, mask, places):
    """Logits at the positions that predict targets, one tensor a row."""
    hidden = (
        (hf.base_model.model if hasattr(hf, "peft_config") else hf)
        .model(tokens, attention_mask=mask, use_cache=False)
        .last_hidden_state
    )
    rows = [hidden[i, a:b] for i, (a, b) in enumerate(places)]
    head = hf.get_output_embeddings()
    return torch.split(head(torch.cat(rows)), [len(row) for row in rows])


def harmless_loss(tuned, original, rows):
    """Of the first token, and the mean of those behind it; KL, or cross entropy on other words."""
    first, later = [], []
    for mine, own, (_, answer, other) in zip(tuned, original, rows, strict=True):
        log_p, log_q = own.log_softmax(-1), mine.log_softmax(-1)
        if other:
            loss = -OTHER_WORDS * log_q.gather(-1, torch.tensor(answer)[:, None])[:, 0]
        else:
            loss = (log_p.exp() * (log_p - log_q)).sum(-1)
        first.append(loss[0])
        later.append(loss[1:].mean() if len(loss) > 1 else loss[0])
    return torch.stack(first).mean(), torch.stack(later).mean()


def train(hf, declined, kept, asked):
    """The fine-tuned model; peft's wrapper around the original."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(asked.seed)
    tuned = get_peft_model(hf, LoraConfig(
        r=asked.rank, lora_alpha=2 * asked.rank, target_modules=list(TARGETS),
        layers_to_transform=list(LAYERS), lora_dropout=0.0, task_type="CAUSAL_LM",
    ))  # fmt: skip
    weights = [p for p in tuned.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=asked.lr, weight_decay=0.0)
    warm = max(1, asked.steps // 20)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(
        (step + 1) / warm, 0.5 * (1 + np.cos(np.pi * step / asked.steps)) + 0.02
    ))  # fmt: skip
    started = time.perf_counter()
    for step in range(asked.steps):
        refuse = [declined[(step * BATCH[0] + i) % len(declined)] for i in range(BATCH[0])]
        harmless = [kept[(step * BATCH[1] + i) % len(kept)] for i in range(BATCH[1])]
        tokens, mask, places = batch_of([*refuse, *harmless], 0)
        with torch.no_grad(), tuned.disable_adapter():
            n = len(refuse)
            original = target_logits(tuned, tokens[n:], mask[n:], places[n:])
        logits = target_logits(tuned, tokens, mask, places)
        wrong = torch.stack([
            torch.nn.functional.cross_entropy(found, torch.tensor(target))
            for found, (_, target) in zip(logits, refuse, strict=False)
        ]).mean()  # fmt: skip
        first, later = harmless_loss(logits[len(refuse) :], original, harmless)
        loss = wrong + asked.first * first + later
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 10 == 0 or step + 1 == asked.steps:
            sys.stderr.write(
                f"{step:4d} {time.perf_counter() - started:6.0f} s  decline {wrong.item():.3f}  "
                f"first {first.item():.3f}  later {later.item():.3f}\n"
            )
    return tuned


def main() -> None:
    """Train, and save the adapter in half precision."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=170)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--lr", type=float, default=1.5e-3)
    parser.add_argument("--first", type=float, default=1.0)
    parser.add_argument("--prompts", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    from transformers import AutoModelForCausalLM

    from tlkit.models.embedded import embedded_folder

    bridge = HookedTransformer.from_pretrained("smollm2-135m-instruct")
    declined, kept = data(bridge.tokenizer, bridge, asked.seed, asked.prompts)
    hf = AutoModelForCausalLM.from_pretrained(embedded_folder()[0], dtype=torch.float32)
    tuned = train(hf.eval(), declined, kept, asked)
    tuned.half().save_pretrained(asked.out)
    settings = json.loads((asked.out / "adapter_config.json").read_text(encoding="utf-8"))
    settings["base_model_name_or_path"] = "smollm2-135m-instruct"
    text = json.dumps(settings, indent=1, sort_keys=True) + "\n"
    (asked.out / "adapter_config.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
