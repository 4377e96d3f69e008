"""Find a model on the Hugging Face hub, or in what was fetched from it before."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tlkit.errors import SpecError
from tlkit.models.files import Place
from tlkit.models.validate import TOKENIZERS, read_json


@dataclass(frozen=True)
class HubModel:
    """A model of the hub, pinned to one commit.

    Attributes:
        place: Where transformers finds it.
        raw: Its config.json.
        commit: The commit that every file of it comes from.
    """

    place: Place
    raw: dict[str, Any]
    commit: str


def _explain(name: str, revision: str | None, error: Exception) -> SpecError:
    """Say in one sentence why a hub model cannot be had."""
    from huggingface_hub.errors import (
        GatedRepoError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in causes:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    if any(isinstance(cause, GatedRepoError) for cause in causes):
        return SpecError(
            f"{name} is gated: accept its terms on its hub page and log in with: hf auth login"
        )
    if any(isinstance(cause, RevisionNotFoundError) for cause in causes):
        return SpecError(f"{name} has no revision {revision!r} on the hub.")
    if any(isinstance(cause, RepositoryNotFoundError) for cause in causes):
        return SpecError(
            f"There is no folder {name} here and no model {name} on the hub (or it is private: "
            f"log in with: hf auth login)."
        )
    if "does not appear to have a file named" in str(error):
        return SpecError(f"{name} on the hub is not a model: it has no config.json.")
    return SpecError(
        f"{name} is no folder here, it is not in the hub cache, and the hub cannot be reached; "
        f"connect once, or give a folder or a .gguf file."
    )


def find_on_hub(name: str, revision: str | None, trust_remote_code: bool) -> HubModel:
    """Fetch a hub model's config and pin the commit that it came from.

    Args:
        name: The hub id; TransformerLens's old short names are known.
        revision: Branch, tag or commit; None is the main branch.
        trust_remote_code: Passed on to transformers.

    Raises:
        SpecError: It is not there, gated, not a model, or cannot be reached.
    """
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError
    from transformer_lens.tools.model_registry.registry_io import resolve_model_alias
    from transformers.utils.hub import cached_file, extract_commit_hash

    name = resolve_model_alias(name) or name
    try:
        found = cached_file(name, "config.json", revision=revision)
    except (OSError, HfHubHTTPError, HFValidationError) as error:
        raise _explain(name, revision, error) from error
    if found is None:
        raise SpecError(f"{name} on the hub is not a model: it has no config.json.")
    commit = extract_commit_hash(found, None) or revision or "main"
    options = {"revision": commit, "trust_remote_code": trust_remote_code}
    return HubModel(Place(name, name, options), read_json(Path(found)), commit)


def has_tokenizer(model: HubModel) -> bool:
    """Say whether a hub model comes with a tokenizer, fetching its files if so."""
    from transformers.utils.hub import cached_files

    found = cached_files(
        model.place.name,
        list(TOKENIZERS),
        revision=model.commit,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return bool(found)
