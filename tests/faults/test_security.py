"""Promises of docs/security.md, each tried by what would break it."""

import base64
import contextlib
import hashlib
import json
import random
import re
import socket
import struct
import sys
import zipfile
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import tlkit as tk
from tlkit.app.guard import MOST_BYTES, Guard
from tlkit.errors import SpecError
from tlkit.models.cache import MARK, clear
from tlkit.models.gguf_file import read_head
from tlkit.models.load import HookedTransformer
from tlkit.models.tiny import tiny, tiny_tokenizer
from tlkit.models.validate import read_json, read_safetensors
from tlkit.studies.layer_probes.activations import folder_of

PACKAGE = Path(tk.__file__).parent
HOSTILE = '</script><img src=x onerror="alert(1)"><a href="http://example.org/?leak">&#x202e;'


@pytest.fixture
def folder(tmp_path):
    """A model's folder."""
    tiny("llama").save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    return tmp_path


# Promise: no code of a model runs unless you say so.

EVIL = "from pathlib import Path\nPath({mark!r}).touch()\nclass Config: pass\nclass Model: pass\n"


def test_a_models_own_code_is_not_run_and_not_asked_about(folder, tmp_path_factory, monkeypatch):
    mark = tmp_path_factory.mktemp("mark") / "ran"
    (folder / "evil.py").write_text(EVIL.format(mark=str(mark)))
    config = json.loads((folder / "config.json").read_text())
    names = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("the user was asked"))
    (folder / "config.json").write_text(
        json.dumps({**config, "model_type": "evil", "auto_map": names})
    )
    with pytest.raises(SpecError, match=r"Python code of its own .*trust_remote_code=True"):
        HookedTransformer.from_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({**config, "auto_map": names}))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings |= {"auto_map": {"AutoTokenizer": ["evil.Config", None]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    with contextlib.suppress(SpecError):  # a family that transformers knows needs no code
        HookedTransformer.from_pretrained(folder, device="cpu")
    assert not mark.exists()


class Payload:
    """Unpickled, it would make a file."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (Path(self.mark),)


def test_a_pickle_in_a_bin_file_is_not_run(folder, tmp_path_factory):
    import pickle

    mark = tmp_path_factory.mktemp("mark") / "ran"
    (folder / "model.safetensors").unlink()
    with zipfile.ZipFile(folder / "pytorch_model.bin", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"x": Payload(str(mark))}, protocol=2))
        archive.writestr("archive/version", "3\n")
        archive.writestr("archive/byteorder", "little")
    with pytest.raises(SpecError) as told:
        HookedTransformer.from_pretrained(folder, device="cpu")
    assert "\n" not in str(told.value)
    assert not mark.exists()


def test_no_file_of_the_package_unpickles():
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(
            r"\bimport (pickle|marshal|shelve|dill|joblib)|allow_pickle=True", text
        )
        assert not re.search(r"torch\.load\((?![^)]*weights_only=True)", text)
        assert not re.search(r"(?<![.\w])(eval|exec)\(|shell=True|os\.system", text), path


# Promise: headers of model files are checked before anything is allocated.


def refused(read, path):
    """Whether a file is refused, in one sentence."""
    try:
        read(path)
    except SpecError as error:
        assert "\n" not in str(error)
        assert len(str(error)) < 600
        return True
    return False


def fuzz(read, whole, path, times, seed):
    """Files cut short, changed, and with numbers blown up: each read or refused, none crashes."""
    dice, count = random.Random(seed), 0
    for _ in range(times):
        data, kind = bytearray(whole), dice.randrange(4)
        head = min(len(data) - 8, 4096)
        if kind == 0:
            data = data[: dice.randrange(len(data))]
        elif kind == 1:
            for _ in range(dice.randrange(1, 8)):
                data[dice.randrange(head)] = dice.randrange(256)
        elif kind == 2:
            at = dice.randrange(head)
            data[at : at + 8] = struct.pack("<Q", dice.choice([2**64 - 1, 2**63, 2**32, 2**40]))
        else:
            at = dice.randrange(head)
            data[at:at] = dice.randbytes(dice.randrange(1, 64))
        path.write_bytes(bytes(data))
        count += refused(read, path)
    return count


def safetensors_file(path):
    from safetensors.numpy import save_file

    save_file({"a": np.zeros((3, 4), np.float32), "b": np.ones(5, np.float16)}, path)
    return path.read_bytes()


def gguf_file(path):
    import gguf

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_array("tokenizer.ggml.tokens", [f"t{i}" for i in range(20)])
    writer.add_tensor("token_embd.weight", np.zeros((20, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


FORMATS = {
    "safetensors": (read_safetensors, safetensors_file), "gguf": (read_head, gguf_file),
}  # fmt: skip


@pytest.mark.parametrize("kind", FORMATS)
def test_changed_headers_are_read_or_refused(kind, tmp_path):
    read, write = FORMATS[kind]
    assert fuzz(read, write(tmp_path / f"whole.{kind}"), tmp_path / f"x.{kind}", 400, 1) > 100


@pytest.mark.campaign
@pytest.mark.parametrize("kind", FORMATS)
def test_20_000_changed_headers_are_read_or_refused(kind, tmp_path):
    read, write = FORMATS[kind]
    found = fuzz(read, write(tmp_path / f"whole.{kind}"), tmp_path / f"x.{kind}", 20_000, 2)
    print(f"{kind}: {found} of 20,000 refused, the others are read")


def safetensors_of(header, size=0):
    raw = json.dumps(header).encode() if isinstance(header, dict) else header
    return struct.pack("<Q", len(raw)) + raw + bytes(size)


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<Q", 2**63) + b"{}",
        safetensors_of(b"[" * 50_000),
        safetensors_of({"a": {"dtype": "F32", "shape": [-2, -3], "data_offsets": [0, 24]}}, 24),
        safetensors_of({"a": {"dtype": "F32", "shape": [2**62, 4], "data_offsets": [0, 24]}}, 24),
        safetensors_of({"a": {"dtype": "F32", "shape": [9] * 99, "data_offsets": [0, 24]}}, 24),
        safetensors_of({"a": {"dtype": "X", "shape": [6], "data_offsets": [24, 0]}}, 24),
        safetensors_of(b'{"a":{"dtype":"X","shape":[1],"data_offsets":[0,NaN]}}'),
        safetensors_of({"a": {"dtype": "F32", "shape": [6], "data_offsets": [0, 2**63]}}, 24),
    ],
)
def test_safetensors_headers_that_mean_harm(data, tmp_path):
    (tmp_path / "x.safetensors").write_bytes(data)
    assert refused(read_safetensors, tmp_path / "x.safetensors")


def gguf_of(pairs, tensors=b"", count=1):
    return b"GGUF" + struct.pack("<IQQ", 3, count, len(pairs)) + b"".join(pairs) + tensors


def entry(name, kind, body):
    raw = name.encode()
    return struct.pack("<Q", len(raw)) + raw + struct.pack("<I", kind) + body


@pytest.mark.parametrize(
    "data",
    [
        gguf_of([], count=2**63),
        gguf_of([entry("a", 9, struct.pack("<IQ", 9, 1) * 5000)]),
        gguf_of([entry("a", 9, struct.pack("<IQ", 8, 2**62))]),
        gguf_of([entry("a", 9, struct.pack("<IQ", 4, 2**62))]),
        gguf_of([entry("a", 8, struct.pack("<Q", 2**63))]),
        gguf_of([entry("general.alignment", 8, struct.pack("<Q", 1) + b"x")], bytes(64), 0),
        gguf_of([entry("general.alignment", 6, struct.pack("<f", float("nan")))], bytes(64), 0),
        gguf_of([], struct.pack("<Q", 1) + b"t" + struct.pack("<I", 2**32 - 1) + bytes(64)),
    ],
)
def test_gguf_headers_that_mean_harm(data, tmp_path):
    (tmp_path / "x.gguf").write_bytes(data)
    assert refused(read_head, tmp_path / "x.gguf")


@pytest.mark.parametrize(
    "change",
    [
        {"num_hidden_layers": 10**9}, {"num_hidden_layers": "many"}, {"hidden_size": 10**12},
        {"hidden_size": -4}, {"vocab_size": 2**62}, {"num_attention_heads": 0},
        {"hidden_size": None}, {"rope_parameters": "x"},
    ],
)  # fmt: skip
def test_configs_that_would_fill_the_memory(folder, change):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **change}))
    assert refused(lambda path: HookedTransformer.from_pretrained(path, device="cpu"), folder)


def test_json_that_is_nested_without_end(tmp_path):
    (tmp_path / "config.json").write_text("[" * 100_000)
    assert refused(read_json, tmp_path / "config.json")


# Promise: no name leads out of its folder.


@pytest.mark.parametrize("name", ["../other.safetensors", "/etc/passwd", "a/../../b", "..\\b"])
def test_an_index_names_files_of_its_own_folder_alone(folder, name):
    (folder / "model.safetensors").rename(folder.parent / "other.safetensors")
    index = {"weight_map": {"model.embed_tokens.weight": name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(SpecError, match="no file of its own folder"):
        HookedTransformer.from_pretrained(folder)


@pytest.mark.parametrize("name", ["../../up", "/abs", "..", "a/b", "nul\0", "x" * 300, "C:\\x", ""])
def test_a_models_name_makes_a_folder_inside_the_store(name, tmp_path):
    made = folder_of(tmp_path, name)
    assert made.resolve().parent == tmp_path.resolve()
    assert len(made.name) < 128
    assert "\0" not in made.name


def test_clearing_the_cache_deletes_what_tlkit_made_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("TLKIT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / MARK).touch()
    own = tmp_path / "cache" / "models" / "a"
    own.mkdir(parents=True)
    (own / MARK).touch()
    (tmp_path / "cache" / "models" / "b").symlink_to(tmp_path / "mine")
    assert clear("../mine") == []
    clear()
    assert (tmp_path / "mine" / MARK).exists()
    assert not own.exists()


# Promise: pages escape what they show, run their own scripts alone, and ask nothing of a network.


class Page(HTMLParser):
    """What a page holds: scripts, attributes that act or load, and its policy."""

    def __init__(self, text):
        super().__init__()
        self.scripts, self.acts, self.policy, self._in = [], [], "", False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self._in = tag == "script"
        if self._in:
            self.scripts.append("")
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"]
        self.acts += [f"{tag} {k}={v}" for k, v in attrs if k.startswith("on")]
        outside = ("http:", "https:", "//", "javascript:")
        self.acts += [
            f"{tag} {k}={v}" for k, v in attrs
            if k in ("src", "href", "action", "data", "srcset") and (v or "").startswith(outside)
        ]  # fmt: skip

    def handle_endtag(self, tag):
        self._in = False

    def handle_data(self, data):
        if self._in:
            self.scripts[-1] += data


def hostile_dataset():
    from tlkit.results.schema import build, token_coords

    values = np.random.default_rng(0).normal(size=(1, 2, 2, 1)).astype(np.float32)
    dims = ("metric", "layer", "pos", "example")
    coords = {"metric": ["logit_diff"], "metric_units": ("metric", ["logits"])}
    coords |= token_coords([[HOSTILE, "b"]], [[HOSTILE, "c"]])
    return build({"value": (dims, values), "effect": (dims, values)}, coords, {"model": HOSTILE})


def test_a_report_of_hostile_names_runs_nothing_of_theirs(tmp_path):
    from tlkit.plots.report import Section

    path = tk.report(
        [Section(HOSTILE, [hostile_dataset(), HOSTILE, [{HOSTILE: HOSTILE}], {HOSTILE: HOSTILE}])],
        tmp_path / "page.html", title=HOSTILE,
    )  # fmt: skip
    page = Page(path.read_text(encoding="utf-8"))
    assert page.acts == []
    assert "default-src 'none'" in page.policy
    assert "unsafe-eval" not in page.policy
    for script in page.scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in page.policy
    assert not re.search(r"(connect|script|default)-src[^;]*(https?:|\*)", page.policy)


def test_a_figure_alone_is_as_safe(tmp_path):
    from tlkit.plots.saving import save

    figure = tk.plot(hostile_dataset())
    figure.update_layout(title_text=HOSTILE)
    page = Page(save(figure, tmp_path / "x.html").read_text(encoding="utf-8"))
    assert page.acts == []
    assert "default-src 'none'" in page.policy


def test_the_widget_writes_text_and_never_markup():
    for path in (PACKAGE / "app" / "static").glob("*.js"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|"
            r"fetch\(|XMLHttpRequest|WebSocket|sendBeacon|https?://(?!www\.w3\.org/)", text,
        )  # fmt: skip


# Promise: the explorer answers its own page on this machine alone, and no request of any size.


def asked(headers, bodies=()):
    """What a request gets, and what the application received of it."""
    sent, received, left = [], [], list(bodies)

    async def application(scope, receive, send):
        while True:
            received.append(await receive())
            if received[-1]["type"] == "http.disconnect" or not received[-1].get("more_body"):
                return

    async def receive():
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    async def send(message):
        sent.append(message)

    rows = [(b"host", b"127.0.0.1:4567"), *headers]
    scope = {"type": "http", "headers": rows}
    with pytest.raises(StopIteration):
        Guard(application, 4567)(scope, receive, send).send(None)
    return sent, received


@pytest.mark.parametrize("length", [b"%d" % (MOST_BYTES + 1), b"9" * 40, b"-1", b"x", b""])
def test_a_large_request_is_refused_unread(length):
    sent, received = asked([(b"content-length", length)], [b"x"])
    assert sent[0]["status"] == 413
    assert received == []


def test_a_request_that_does_not_say_its_length_is_cut_off():
    _, received = asked([], [b"x" * (MOST_BYTES // 2 + 1)] * 4)
    assert [one["type"] for one in received] == ["http.request", "http.disconnect"]


def test_usual_requests_get_through():
    _, received = asked([(b"content-length", b"5")], [b"hello"])
    assert received[0]["body"] == b"hello"


def test_it_listens_on_loopback():
    from tlkit.app.server import HOST, listen

    with listen(None) as taken:
        assert taken.getsockname()[0] == HOST == "127.0.0.1"


# Promise: nothing leaves the machine unless a model is asked of the hub.


def test_no_address_is_looked_up_or_called(folder, tmp_path_factory, monkeypatch):
    tried = []

    def refuse(*address, **_):
        tried.append(address)
        raise OSError("no network in this test")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    model = HookedTransformer.from_pretrained(folder, device="cpu")
    prompts = tk.Prompts.from_pairs(model, ["The cat sat"], ["The dog sat"], [" a"], [" b"])
    found = tk.patching.run(model, prompts, "resid_pre", tk.KL())
    out = tmp_path_factory.mktemp("out")
    tk.save(found, out / "x.zarr")
    tk.report([found, tk.plot(found)], out / "x.html")
    tk.explore(model, prompts).close()
    assert tried == []


def test_the_hub_is_told_no_more_than_a_request_needs():
    from huggingface_hub import constants

    from tlkit.models.quiet import untouched

    before = constants.HF_HUB_DISABLE_TELEMETRY
    with untouched():
        assert constants.HF_HUB_DISABLE_TELEMETRY is True
    assert constants.HF_HUB_DISABLE_TELEMETRY is before


def test_a_store_holds_no_objects(tmp_path):
    ds = xr.Dataset({"a": ("x", np.array([{"b": 1}], dtype=object))})
    with pytest.raises(SpecError, match="numbers, true/false and text"):
        tk.save(ds, tmp_path / "x.zarr")
    assert "pickle" not in {name.split(".")[0] for name in sys.modules if name.startswith("tlkit")}
