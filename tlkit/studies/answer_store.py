"""Answers that are kept on disk: one file for each model and setting, one line for each prompt."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FORMAT = 1


class AnswerStore:
    """Generated token ids by prompt. Lines that cannot be read are passed over.

    Args:
        path: A file of JSON lines, or None to keep answers in memory alone.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._known: dict[str, list[int]] = {}
        if path is not None and path.is_file():
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                try:
                    row = json.loads(line)
                    self._known[str(row["prompt"])] = [int(token) for token in row["ids"]]
                except (ValueError, KeyError, TypeError):
                    continue

    @classmethod
    def of(cls, model: Any, **settings: Any) -> "AnswerStore":
        """Find the store of a model as it is now, and of settings."""
        from importlib.metadata import version

        from tlkit.models.cache import cache_dir
        from tlkit.models.info import info

        about = info(model)
        device = next(model.parameters()).device.type
        parts = [
            FORMAT, about.weight_hash, about.tokenizer_hash, device, version("transformers"),
            sorted(settings.items()),
        ]  # fmt: skip
        key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
        return cls(cache_dir() / "answers" / f"{key}.jsonl")

    def get(self, prompt: Sequence[int]) -> list[int] | None:
        """Look an answer up; None if it is not there."""
        return self._known.get(_key(prompt))

    def add(self, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]) -> None:
        """Keep answers; a full or read-only disk costs nothing but the keeping."""
        rows = {_key(prompt): list(ids) for prompt, ids in zip(prompts, answers, strict=True)}
        self._known |= rows
        if self.path is None:
            return
        lines = "".join(f"{json.dumps({'prompt': k, 'ids': v})}\n" for k, v in rows.items())
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(lines)
        except OSError:
            self.path = None


def _key(prompt: Sequence[int]) -> str:
    return hashlib.sha256(json.dumps([int(token) for token in prompt]).encode()).hexdigest()[:32]


def stop_tokens(model: Any, *, chat: bool) -> set[int]:
    """Find the tokens that end an answer: the model's own, and what its template puts there."""
    from tlkit.models.text import encode, render_chat

    tokenizer = model.tokenizer
    config = getattr(model.original_model, "generation_config", None)
    named = [getattr(tokenizer, "eos_token_id", None), getattr(config, "eos_token_id", None)]
    stops = {
        int(token)
        for one in named
        if one is not None
        for token in (one if isinstance(one, list) else [one])
    }
    if chat:
        turns = [{"role": "user", "content": "Zqj"}, {"role": "assistant", "content": "Qzj"}]
        rendered = render_chat(tokenizer, turns, generation_prompt=False)
        after = encode(tokenizer, rendered.rpartition("Qzj")[2].lstrip(), special=False).ids
        if after and after[0] in set(tokenizer.added_tokens_decoder):
            stops.add(after[0])
    return stops
