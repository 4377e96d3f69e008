"""GGUF files: read to the last tensor, or refused with the reason."""

import re
import struct

import numpy as np
import pytest
import torch

from tlkit.errors import SpecError
from tlkit.models.gguf_file import read_head
from tlkit.models.load import HookedTransformer
from tlkit.models.text import encode, render_chat
from tlkit.models.tiny import tiny, tiny_tokenizer


@pytest.fixture(scope="module")
def qwen(write_gguf, tmp_path_factory):
    return write_gguf(tiny("qwen2"), tmp_path_factory.mktemp("gguf") / "qwen.gguf", "qwen2")


def logits_of(model, ids):
    with torch.no_grad():
        out = model(ids)
    return getattr(out, "logits", out)


def test_a_gguf_file_gives_the_logits_of_the_model_that_it_was_written_from(qwen, ids):
    model = HookedTransformer.from_pretrained(qwen)
    torch.testing.assert_close(
        logits_of(model, ids), logits_of(tiny("qwen2"), ids), atol=1e-5, rtol=0
    )


def test_a_gguf_file_brings_its_tokenizer_bos_and_template(qwen):
    model = HookedTransformer.from_pretrained(str(qwen))
    text = "When Mary went <eos> naïve 😀"
    assert encode(model, text) == encode(tiny_tokenizer(), text)
    chat = render_chat(model, "Hi")
    assert chat == render_chat(tiny_tokenizer(), "Hi")
    assert encode(model, chat, special=False).ids.count(0) == 1


def test_llama_3_rotary_factors_are_applied(write_gguf, tmp_path, ids):
    """transformers ignores them; llama.cpp divides each frequency by its factor."""
    theirs = tiny("llama3")
    scaled = theirs.model.rotary_emb.inv_freq
    plain = 1.0 / 10000.0 ** (torch.arange(0, 16, 2) / 16)
    assert not torch.allclose(scaled, plain)
    factors = {"rope_freqs.weight": (plain / scaled).numpy().astype(np.float32)}
    path = write_gguf(theirs, tmp_path / "llama.gguf", "llama", tensors=factors)
    model = HookedTransformer.from_pretrained(path)
    torch.testing.assert_close(logits_of(model, ids), logits_of(theirs, ids), atol=1e-5, rtol=0)


def test_rotary_scaling_that_transformers_would_ignore_is_refused(write_gguf, tmp_path):
    extra = {"qwen2.rope.scaling.type": "yarn", "qwen2.rope.scaling.factor": 4.0}
    path = write_gguf(tiny("qwen2"), tmp_path / "yarn.gguf", "qwen2", extra=extra)
    with pytest.raises(SpecError, match=r"scales its rotary positions \(yarn, 4\).*would be wrong"):
        HookedTransformer.from_pretrained(path)


def test_a_weight_that_is_not_in_the_file_is_missed(write_gguf, tmp_path):
    path = write_gguf(
        tiny("qwen2"), tmp_path / "part.gguf", "qwen2", leave_out={"blk.1.ffn_up.weight"}
    )
    with pytest.raises(SpecError, match=r"lacks 1 weight.*model\.layers\.1\.mlp\.up_proj\.weight"):
        HookedTransformer.from_pretrained(path)


def test_every_cut_of_a_file_is_noticed(qwen, tmp_path):
    data = qwen.read_bytes()
    cut = tmp_path / "cut.gguf"
    for length in [30, 200, 5000, len(data) // 2, len(data) - 1]:
        cut.write_bytes(data[:length])
        with pytest.raises(SpecError, match=r"is cut short|damaged or cut GGUF file"):
            read_head(cut)
    cut.write_bytes(data)
    assert read_head(cut).elements == sum(p.numel() for p in tiny("qwen2").parameters())


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is not a GGUF file"),
        (b"not a model at all", "is not a GGUF file: it does not start with the letters GGUF"),
        (b"GGUF" + struct.pack("<I", 1) + b"\0" * 64, "is GGUF of version 1; versions 2 and 3"),
        (b"GGUF" + struct.pack(">I", 3) + b"\0" * 64, r"is GGUF of version \d+; .*little-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 0), "without weights"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 62, 1 << 62), "damaged or cut GGUF file"),
        (
            b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + struct.pack("<Q1sI", 1, b"a", 99),
            "damaged or cut GGUF file",
        ),
    ],
)
def test_files_that_are_none(tmp_path, data, why):
    path = tmp_path / "x.gguf"
    path.write_bytes(data)
    with pytest.raises(SpecError, match=why):
        HookedTransformer.from_pretrained(path)


def test_garbage_in_a_header_never_ends_in_anything_but_a_sentence(qwen, tmp_path):
    data = bytearray(qwen.read_bytes()[:4000]) + qwen.read_bytes()[4000:]
    path = tmp_path / "x.gguf"
    random = np.random.default_rng(0)
    for _ in range(200):
        broken = bytearray(data)
        for place in random.integers(8, 4000, 4):
            broken[place] = int(random.integers(256))
        path.write_bytes(broken)
        try:
            read_head(path)
        except SpecError as error:
            assert re.search(r"x\.gguf", str(error))


@pytest.mark.parametrize(
    ("family", "why"),
    [
        ("bert", r"encoder-only model \(bert\)"),
        ("hal", "is a hal, which is not supported; supported are"),
    ],
)
def test_families_that_cannot_be_read(write_gguf, tmp_path, family, why):
    import gguf

    writer = gguf.GGUFWriter(str(tmp_path / "x.gguf"), family)
    writer.add_tensor("a", np.zeros((4, 4), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(SpecError, match=why):
        HookedTransformer.from_pretrained(tmp_path / "x.gguf")


def test_one_part_of_several_is_refused(write_gguf, tmp_path):
    path = write_gguf(tiny("qwen2"), tmp_path / "p.gguf", "qwen2", extra={"split.count": 3})
    with pytest.raises(SpecError, match="is one part of 3; join the parts"):
        HookedTransformer.from_pretrained(path)
