"""Models of the hub: the real code path, on a hub cache written here."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import textwrap
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from unittest.mock import Mock

import pytest

from tlkit.errors import SpecError
from tlkit.models import hub, prepare
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


LOAD_ACME = """
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
        [sys.executable, "-c", textwrap.dedent(LOAD_ACME), COMMIT],
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
    lines = [line for line in done.stderr.splitlines() if line and "Loading weights" not in line]
    assert lines == [], "nothing but the bar of a model that may be large"


@pytest.fixture
def own_hub(make_folder):
    """A hub of our own on this machine: one model, one commit."""
    folder = make_folder("llama")

    class Hub(BaseHTTPRequestHandler):
        def reply(self, data, code=200, **headers):
            self.send_response(code)
            for name, value in {"Content-Length": len(data), **headers}.items():
                self.send_header(name.replace("_", "-"), str(value))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

        def do_GET(self):
            path = self.path.partition("?")[0]
            file = folder / path.rpartition("/")[2]
            if path.startswith("/api/models/acme/small/tree/"):
                files = [{"type": "file", "path": f.name, "size": 1, "oid": "0"}
                         for f in folder.iterdir()]  # fmt: skip
                self.reply(json.dumps(files).encode())
            elif path.startswith("/api/models/acme/small"):
                self.reply(json.dumps({"id": "acme/small", "sha": COMMIT}).encode())
            elif not path.startswith("/acme/small/resolve/"):
                self.reply(b"", 404, X_Error_Code="RepoNotFound")
            elif not file.is_file():
                self.reply(b"", 404, X_Error_Code="EntryNotFound", X_Repo_Commit=COMMIT)
            else:
                tag = hashlib.sha256(file.read_bytes()).hexdigest()
                self.reply(file.read_bytes(), X_Repo_Commit=COMMIT, ETag=f'"{tag}"')

        do_HEAD = do_GET

        def log_message(self, *_):
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.mark.slow
def test_a_model_is_fetched_from_the_hub_and_pinned(own_hub, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LOAD_ACME), COMMIT],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ
        | {"HF_HOME": str(tmp_path), "HF_ENDPOINT": own_hub, "PYTHONPATH": ".", "no_proxy": "*"},
    )
    assert done.stdout.strip() == (
        "There is no folder acme/other here and no model acme/other on the hub (or it is private: "
        "log in with: hf auth login)."
    ), done.stderr
    assert "Fetching" in done.stderr, "a download should show how far it is"
    assert "Warning" not in done.stderr


@pytest.fixture
def answer(monkeypatch):
    """Let the hub answer with an error, or with the path of a config."""

    def set_answer(value):
        def ask(*_, **__):
            if isinstance(value, Exception):
                raise value
            return type("Metadata", (), {"commit_hash": COMMIT})()

        monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", ask)
        monkeypatch.setattr(hub, "fetch_config", lambda *_, **__: value)

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
    monkeypatch.setattr(prepare, "has_tokenizer", lambda _: False)
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
