"""Load the one tokenizer that reads text for a model."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tlkit.errors import SpecError
from tlkit.models.validate import TOKENIZERS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def no_tokenizer(source: str) -> SpecError:
    """Make the error for a model that comes without a tokenizer."""
    return SpecError(
        f"{source} comes with no tokenizer; pass tokenizer= (a tokenizer, or a folder or hub id "
        f"that has one)."
    )


def check_tokenizer_files(folder: Path) -> None:
    """Check that a folder has something to make a tokenizer of.

    Raises:
        SpecError: It has not.
    """
    if not any((folder / name).is_file() for name in TOKENIZERS):
        raise no_tokenizer(str(folder))


def load_tokenizer(place: str, *, source: str, **options: Any) -> "PreTrainedTokenizerBase":
    """Load a tokenizer from a folder, a hub id or a GGUF file.

    Args:
        place: Folder or hub id.
        source: What the model is called in messages.
        **options: As transformers takes them (revision, gguf_file, local_files_only, ...).

    Raises:
        SpecError: There is none, or it cannot be read.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(place, **options)  # nosec B615: pinned, in options
    except Exception as error:  # transformers raises whatever a strange file runs into
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise SpecError(
            f"The tokenizer of {source} cannot be loaded ({reason[0]}); pass tokenizer= instead."
        ) from error
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise no_tokenizer(source)
    return tokenizer


def given_tokenizer(value: Any, trust_remote_code: bool) -> "PreTrainedTokenizerBase":
    """Take the tokenizer that a user passed, or load it from where they said.

    Raises:
        SpecError: It is no tokenizer.
    """
    from transformers import PreTrainedTokenizerBase

    if isinstance(value, PreTrainedTokenizerBase):
        return value
    if not isinstance(value, str | Path):
        raise SpecError(
            f"tokenizer must be a tokenizer, a folder or a hub id, not a {type(value).__name__}."
        )
    path = Path(value).expanduser()
    local = path.exists()
    if local:
        check_tokenizer_files(path)
    return load_tokenizer(
        str(path) if local else str(value),
        source=str(value),
        local_files_only=local,
        trust_remote_code=trust_remote_code,
    )


def check_vocabulary(tokenizer: "PreTrainedTokenizerBase", rows: int, source: str) -> None:
    """Refuse a tokenizer whose ids the model has no embedding for.

    Raises:
        SpecError: It is another model's tokenizer.
    """
    if tokenizer.vocab_size > rows:
        raise SpecError(
            f"The tokenizer has {tokenizer.vocab_size:,} tokens and {source} has embeddings for "
            f"{rows:,}; pass the tokenizer that belongs to the model."
        )
