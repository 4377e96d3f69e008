"""Find a model on the Hugging Face hub, or in what was fetched from it before."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tlkit.errors import SpecError
from tlkit.models.files import Place
from tlkit.models.validate import TOKENIZERS, read_json

_PATIENCE = 10  # seconds that the hub may take to answer


@dataclass(frozen=True)
class HubModel:
    """A model of the hub, pinned to one commit.

    Attributes:
        name: Its id.
        raw: Its config.json.
        commit: The commit that every file of it comes from.
        folder: Where its files lie on this machine, if the hub cannot be reached for more.
    """

    name: str
    raw: dict[str, Any]
    commit: str | None
    folder: Path | None

    def place(self, trust_remote_code: bool) -> Place:
        """Say where transformers finds it."""
        options = {"revision": self.commit, "trust_remote_code": trust_remote_code}
        return Place(self.name, self.name, options)


def _ask(name: str, revision: str | None) -> str | None:
    """Ask the hub once which commit a revision is; None when the hub cannot be reached.

    transformers itself would try again for half a minute for each of a model's files.

    Raises:
        SpecError: The hub answers, and refuses.
    """
    from huggingface_hub import errors, get_hf_file_metadata, hf_hub_url

    try:
        url = hf_hub_url(name, "config.json", revision=revision)
        return get_hf_file_metadata(url, timeout=_PATIENCE).commit_hash
    except errors.GatedRepoError:
        reason = f"{name} is gated: accept its terms on its hub page and log in with: hf auth login"
    except errors.RevisionNotFoundError:
        reason = f"{name} has no revision {revision!r} on the hub."
    except errors.RepositoryNotFoundError:
        reason = (
            f"There is no folder {name} here and no model {name} on the hub (or it is private: "
            f"log in with: hf auth login)."
        )
    except errors.EntryNotFoundError:
        reason = f"{name} on the hub is not a model: it has no config.json."
    except errors.HFValidationError as error:
        reason = f"{name} cannot be the name of a hub model: {error}"
    except Exception:  # whatever the network's library calls it
        return None
    raise SpecError(reason)


def fetch_config(name: str, revision: str | None, *, local: bool) -> Path | None:
    """Give the path of a hub model's config.json, fetched unless only this machine may be asked."""
    from transformers.utils.hub import cached_file

    try:
        found = cached_file(name, "config.json", revision=revision, local_files_only=local)
    except OSError:
        return None
    return Path(found) if found is not None else None


def find_on_hub(name: str, revision: str | None) -> HubModel:
    """Fetch a hub model's config and pin the commit that it came from.

    Args:
        name: The hub id; TransformerLens's old short names are known.
        revision: Branch, tag or commit; None is the main branch.

    Raises:
        SpecError: It is not there, gated, not a model, or neither cached nor to be reached.
    """
    from transformer_lens.tools.model_registry.registry_io import resolve_model_alias
    from transformers.utils.hub import extract_commit_hash

    name = resolve_model_alias(name) or name
    commit = _ask(name, revision)
    path = fetch_config(name, commit or revision, local=commit is None)
    if path is None:
        raise SpecError(
            f"{name} is no folder here, it is not in the hub cache, and the hub cannot be "
            f"reached; connect once, or give a folder or a .gguf file."
        )
    pinned = extract_commit_hash(str(path), None) or commit or revision
    return HubModel(name, read_json(path), pinned, path.parent if commit is None else None)


def has_tokenizer(model: HubModel) -> bool:
    """Say whether a hub model comes with a tokenizer, fetching its files if so."""
    from transformers.utils.hub import cached_files

    found = cached_files(
        model.name,
        list(TOKENIZERS),
        revision=model.commit,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return bool(found)
