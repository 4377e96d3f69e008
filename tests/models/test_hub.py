"""Models of the hub: the real code path, on a hub cache written here."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from unittest.mock import Mock

import pytest

from tlkit.errors import SpecError
from tlkit.models import hub
from tlkit.models.load import HookedTransformer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def hub_cache(make_folder, tmp_path):
    """A hub cache that holds one model, as huggingface_hub lays it out."""
    root = tmp_path / "hub" / "models--acme--small"
    (root / "refs").mkdir(parents=True)
    (root / "refs" / "main").write_text(COMMIT)
    (root / "blobs").mkdir()
    shutil.copytree(make_folder("llama"), root / "snapshots" / COMMIT)
    return tmp_path / "hub"


OUT_OF_REACH = """
    import sys
    import torch
    from tlkit.errors import SpecError
    from tlkit.models.info import info
    from tlkit.models.load import HookedTransformer
    from tlkit.models.tiny import tiny
    for revision in [None, "main", sys.argv[1]]:
        model = HookedTransformer.from_pretrained("acme/small", revision=revision, device="cpu")
        ids = model.to_tokens("Mary went to the store")
        with torch.no_grad():
            assert (model(ids) - tiny("llama")(ids).logits).abs().max() < 1e-5
        assert (info(model).source, info(model).revision) == ("acme/small", sys.argv[1])
    try:
        HookedTransformer.from_pretrained("acme/other")
    except SpecError as error:
        print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("offline", ["1", "0"])
def test_without_the_hub_what_is_cached_loads_and_the_rest_is_told(hub_cache, offline):
    """In a process of its own: huggingface_hub reads its settings when it is imported."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(OUT_OF_REACH), COMMIT],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ
        | {
            "HF_HUB_CACHE": str(hub_cache),
            "HF_ENDPOINT": "http://127.0.0.1:9",
            "HF_HUB_OFFLINE": offline,
            "PYTHONPATH": ".",
        },
    )
    assert done.stdout.strip() == (
        "acme/other is no folder here, it is not in the hub cache, and the hub cannot be "
        "reached; connect once, or give a folder or a .gguf file."
    ), done.stderr
    assert done.stderr == ""


@pytest.fixture
def answer(monkeypatch):
    """Let the hub answer with an error, or with the path of a config."""

    def set_answer(value):
        def ask(*_, **__):
            if isinstance(value, Exception):
                raise value
            return type("Metadata", (), {"commit_hash": COMMIT})()

        monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", ask)
        monkeypatch.setattr("transformers.utils.hub.cached_file", lambda *_, **__: str(value))

    return set_answer


def http_error(name):
    from huggingface_hub import errors

    response = errors.Response(401, request=Mock())
    return getattr(errors, name)("told by the hub", response=response)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("GatedRepoError", r"acme/small is gated: accept its terms .*hf auth login"),
        (
            "RepositoryNotFoundError",
            r"no folder acme/small here and no model acme/small on the hub",
        ),
        ("RevisionNotFoundError", r"acme/small has no revision 'v2' on the hub"),
        ("RemoteEntryNotFoundError", r"acme/small on the hub is not a model: it has no config"),
    ],
)
def test_what_the_hub_refuses_is_told_plainly(answer, kind, why):
    answer(http_error(kind))
    with pytest.raises(SpecError, match=why):
        HookedTransformer.from_pretrained("acme/small", revision="v2")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"model_type": "bert"}, r"acme/small is an encoder-only model \(bert\)"),
        (
            {"model_type": "llama", "quantization_config": {"quant_method": "gptq"}},
            r"acme/small is quantised \(gptq\)",
        ),
        (
            {"model_type": "own", "auto_map": {"AutoConfig": "own.Own"}},
            r"acme/small comes with Python code of its own",
        ),
    ],
)
def test_a_config_of_the_hub_is_checked_before_the_weights_are_fetched(
    answer, tmp_path, fields, why
):
    (tmp_path / "config.json").write_text(json.dumps(fields))
    answer(tmp_path / "config.json")
    with pytest.raises(SpecError, match=why):
        HookedTransformer.from_pretrained("acme/small")


def test_a_model_of_the_hub_without_a_tokenizer(answer, tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    answer(tmp_path / "config.json")
    monkeypatch.setattr("transformers.utils.hub.cached_files", lambda *_, **__: None)
    with pytest.raises(SpecError, match="acme/small comes with no tokenizer; pass tokenizer="):
        HookedTransformer.from_pretrained("acme/small")


def test_old_short_names_of_transformerlens_are_known(answer, tmp_path):
    path = tmp_path / "snapshots" / COMMIT / "config.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"model_type": "gpt2"}')
    answer(path)
    found = hub.find_on_hub("gpt2-small", None)
    assert found.name == "gpt2"
    assert found.commit == COMMIT
