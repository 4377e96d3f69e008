"""What stays on disk is the model that would be loaded, or is refused in one sentence."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

import tlkit as tk
from tlkit.errors import SpecError
from tlkit.models import memory, stream
from tlkit.models.bridge import unbridged
from tlkit.models.hub import HubModel
from tlkit.models.info import info
from tlkit.models.layers import Layers
from tlkit.models.load import HookedTransformer
from tlkit.models.stored import Stored
from tlkit.models.streamed import layers_of
from tlkit.models.tiny import FAMILIES, tiny, tiny_tokenizer
from tlkit.models.weight_files import WeightFiles

load = HookedTransformer.from_pretrained
SERVED = [family for family in FAMILIES if family != "mixtral"]


def streamed(folder, **how):
    return load(folder, device="cpu", stream=True, **how)


def logits(model, ids):
    with torch.no_grad():
        return model(ids)


@pytest.fixture(scope="module")
def whole(make_folder):
    return make_folder("llama", max_shard_size="100KB")


@pytest.fixture
def folder(make_folder, tmp_path):
    """A model in one file, to damage."""
    return shutil.copytree(make_folder("llama"), tmp_path / "model")


def rewritten(folder, change):
    """Change the tensors of a folder's file."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file({name: one.contiguous() for name, one in tensors.items()}, path, {"format": "pt"})
    return folder


@pytest.mark.parametrize("dtype", ("float32", "bfloat16"))
@pytest.mark.parametrize("family", SERVED)
def test_the_model_is_the_one_that_would_be_loaded(make_folder, ids, family, dtype):
    folder = make_folder(family, max_shard_size="100KB")
    here, there = load(folder, device="cpu", dtype=dtype), streamed(folder, dtype=dtype)
    assert torch.equal(logits(here, ids), logits(there, ids))
    assert layers_of(there).in_memory == 0
    assert info(here).weight_hash == info(there).weight_hash
    assert info(here).dtype == info(there).dtype == dtype
    for mine, theirs in zip(here.named_buffers(), there.named_buffers(), strict=True):
        assert mine[0] == theirs[0]
        assert torch.equal(mine[1], theirs[1])
    for mine, theirs in zip(here.named_parameters(), there.named_parameters(), strict=True):
        assert mine[0] == theirs[0]
        assert (mine[1].shape, mine[1].dtype) == (theirs[1].shape, theirs[1].dtype)


def test_blocks_come_one_after_another_and_one_ahead(whole, ids):
    model = streamed(whole)
    layers = layers_of(model)
    seen = []
    for block in layers.blocks:
        block.register_forward_hook(
            lambda *_: seen.append(
                [not isinstance(next(b.parameters()), Stored) for b in layers.blocks]
            )
        )
    logits(model, ids)
    assert seen == [[True, False, False], [False, True, False], [False, False, True]]
    assert layers.loads == [1, 1, 1]
    table = 4 * model.unembed.original_component.weight.numel()  # of the logits
    assert layers.files.bytes_read < 3 * layers.largest + 1.1 * table


def test_nothing_is_left_behind_by_a_run_that_fails(whole, ids):
    model = streamed(whole)

    def fail(*_):
        raise RuntimeError("in the middle")

    handle = layers_of(model).blocks[1].register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="in the middle"), unbridged(model) as hf:
        hf(ids)
    handle.remove()
    assert layers_of(model).in_memory == 0
    assert torch.equal(logits(model, ids), logits(load(whole, device="cpu"), ids))


def test_another_blocks_weights_would_be_seen(whole, ids, monkeypatch):
    wanted = logits(load(whole, device="cpu"), ids)
    right = Layers._load

    def wrong(self, index, stop):
        """The weights of the block behind this one."""
        other = right(self, (index + 1) % len(self.blocks), stop)
        return dict(zip(right(self, index, stop), other.values(), strict=True))

    monkeypatch.setattr(Layers, "_load", wrong)
    assert (logits(streamed(whole), ids) - wanted).abs().max() > 0.1


def test_a_weight_is_read_by_rows_and_tiles_and_never_written(whole, monkeypatch):
    files = WeightFiles(whole)
    stored = Stored(files, "lm_head.weight", (512, 64), torch.float32, "cpu")
    table = tiny("llama").lm_head.weight
    ids = torch.tensor([[3, 4, 511], [3, 0, 3]])
    assert torch.equal(torch.nn.functional.embedding(ids, stored), table[ids])
    assert files.bytes_read == 4 * 64 * 4  # each row once
    assert torch.equal(stored[torch.tensor([5, 1])], table[[5, 1]])
    monkeypatch.setattr("tlkit.models.stored.TILE", 7 * 64 * 4)
    x = torch.randn(2, 3, 64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(torch.nn.functional.linear(x, stored), x @ table.T)
    read = files.bytes_read
    turned = stored.T
    assert files.bytes_read == read
    assert torch.equal(turned @ torch.ones(512), table.T @ torch.ones(512))
    with pytest.raises(SpecError, match=r"lm_head.weight .* without stream=True"):
        stored.mul_(2)
    with pytest.raises(IndexError, match="rows 0 to 511"):
        stored[torch.tensor([512])]


def test_a_checkpoint_of_the_bare_model_is_understood(make_folder, ids, tmp_path):
    folder = shutil.copytree(make_folder("gpt2"), tmp_path / "bare")

    def bare(tensors):
        for name in list(tensors):
            tensors[name.removeprefix("transformer.")] = tensors.pop(name)

    rewritten(folder, bare)
    assert torch.equal(logits(streamed(folder), ids), logits(load(folder, device="cpu"), ids))


def test_the_memory_that_is_asked_for_is_that_of_blocks(whole, monkeypatch):
    model = load(whole, device="cpu")
    all_of_it = 4 * sum(weight.numel() for weight in model.parameters())
    monkeypatch.setattr(memory, "available_memory", lambda device: 0.95 * all_of_it)
    with pytest.raises(SpecError, match="needs about"):
        load(whole, device="cpu")
    streamed(whole)
    monkeypatch.setattr(memory, "available_memory", lambda device: 0.2 * all_of_it)
    with pytest.raises(SpecError, match="needs about"):
        streamed(whole)


SOURCES = {
    "tiny:llama": r"tiny:llama is made in memory; .*save_pretrained",
    "smollm2-135m-instruct-refusing": "two sets of weights",
}


@pytest.mark.parametrize("source", SOURCES)
def test_a_source_without_files_of_its_own_is_refused(source):
    with pytest.raises(SpecError, match=SOURCES[source]):
        load(source, stream=True)


def test_objects_and_gguf_files_are_refused(tmp_path):
    with pytest.raises(SpecError, match="in memory already"):
        load(tiny("llama"), tokenizer=tiny_tokenizer(), stream=True)
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(SpecError, match=r"is a GGUF file; give the folder .* in safetensors"):
        load(tmp_path / "model.gguf", stream=True)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"adapter": "somewhere"}, "merge it once"),
        ({"device_map": "auto"}, "give one"),
        ({"requires_grad": True}, "take no gradients"),
    ],
)
def test_what_needs_weights_in_memory_is_refused(whole, how, told):
    with pytest.raises(SpecError, match=told):
        load(whole, stream=True, **how)


def test_a_hub_model_must_have_been_fetched(monkeypatch):
    monkeypatch.setattr(stream, "find_on_hub", lambda *_: HubModel("some/model", {}, "c0", None))
    with pytest.raises(SpecError, match="hf download some/model"):
        load("some/model", stream=True)


def test_weights_that_transformers_rearranges_are_refused(make_folder):
    with pytest.raises(SpecError, match=r"experts.*joins with others.*leave stream=True out"):
        streamed(make_folder("mixtral"))


def test_a_folder_without_safetensors_is_refused(folder):
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(SpecError, match="reads safetensors files"):
        streamed(folder)


DAMAGES = {
    "lacks": (lambda t: t.pop("model.norm.weight"), "lacks model.norm.weight"),
    "shape": (
        lambda t: t.update({"model.norm.weight": torch.ones(63)}),
        r"model.norm.weight as \[63\]",
    ),
    "packed": (
        lambda t: t.update({"model.norm.weight": torch.ones(64, dtype=torch.int8)}),
        "model.norm.weight as I8",
    ),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_checkpoint_that_does_not_fit_is_refused(folder, kind):
    change, told = DAMAGES[kind]
    with pytest.raises(SpecError, match=told):
        streamed(rewritten(folder, change))


def test_two_tables_for_one_are_refused(make_folder, tmp_path):
    folder = shutil.copytree(make_folder("gemma2"), tmp_path / "untied")
    same = lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"].clone()})  # noqa: E731
    streamed(rewritten(folder, same))
    other = lambda t: t.update({"lm_head.weight": t["lm_head.weight"] + 1})  # noqa: E731
    with pytest.raises(SpecError, match="tie_word_embeddings to false"):
        streamed(rewritten(folder, other))


def test_files_that_change_under_a_model_are_noticed(folder, ids):
    model = streamed(folder)
    before = info(model).weight_hash
    rewritten(folder, lambda t: t["model.norm.weight"].add_(1))
    with pytest.raises(SpecError, match="has changed since the model was loaded"):
        logits(model, ids)
    assert info(streamed(folder)).weight_hash != before


def test_a_header_that_points_outside_is_refused(folder):
    path = folder / "model.safetensors"
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    header["model.norm.weight"]["data_offsets"][0] = -256
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])
    with pytest.raises(SpecError, match="damaged safetensors header"):
        WeightFiles(folder)


def test_gradients_baking_and_saving_are_refused(whole, tmp_path):
    model = streamed(whole)
    prompts = tk.Prompts.from_tokens([[5, 6, 7]], [[5, 8, 7]], [[7]], [[17]])
    sweep = tk.Sweep(tk.Patch(tk.Site("resid_pre")), layer=(0, 1), pos=(1,))
    for engine in ("gradient", "verified"):
        with pytest.raises(SpecError, match=r"stream=True; use engine='packed'"):
            tk.run(model, prompts, sweep, tk.LogitDiff(), engine=engine)
    with pytest.raises(SpecError, match="use projected"):
        tk.abliteration.bake(model, torch.ones(64))
    with pytest.raises(SpecError, match="copy its folder"):
        tk.abliteration.save(model, tmp_path / "saved")
    with pytest.raises(SpecError, match="load its folder again"):
        load(model, dtype="bfloat16")
