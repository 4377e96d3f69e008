"""What cannot be loaded is refused in one sentence, before anything heavy."""

import json
import shutil
import struct

import pytest
import torch

from tlkit.errors import SpecError
from tlkit.models import memory, prepare
from tlkit.models.load import HookedTransformer
from tlkit.models.tiny import tiny, tiny_tokenizer

load = HookedTransformer.from_pretrained


@pytest.fixture
def nothing_heavy(monkeypatch):
    """Fail when weights are loaded: each refusal must come before."""

    def too_late(*_, **__):
        raise AssertionError("weights were loaded")

    monkeypatch.setattr(prepare, "load_model", too_late)


@pytest.fixture(scope="module")
def whole(make_folder):
    return make_folder("llama")


@pytest.fixture
def folder(whole, tmp_path):
    """A model folder of one's own to damage."""
    return shutil.copytree(whole, tmp_path / "model")


def change_config(folder, **fields):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.usefixtures("nothing_heavy")
class TestPlaces:
    def test_a_folder_that_is_not_there(self):
        with pytest.raises(SpecError, match=r"no folder \./nowhere/model; give a hub id, a folder"):
            load("./nowhere/model")

    def test_a_file_that_is_not_there(self, tmp_path):
        with pytest.raises(SpecError, match=r"no file .*small\.gguf"):
            load(tmp_path / "small.gguf")

    def test_a_file_that_is_no_model(self, tmp_path):
        (tmp_path / "weights.bin").write_bytes(b"x")
        with pytest.raises(SpecError, match=r"weights\.bin is a file; give its folder"):
            load(tmp_path / "weights.bin")

    def test_a_text_that_is_neither_path_nor_hub_id(self):
        with pytest.raises(SpecError, match="'a model!' is neither a path that exists nor a hub"):
            load("a model!")

    def test_nothing(self):
        with pytest.raises(SpecError, match="source is an empty text; give a hub id"):
            load("")

    def test_an_object_that_is_no_model(self):
        with pytest.raises(SpecError, match="A dict is no model that can be loaded; give a hub id"):
            load({})

    def test_a_folder_without_a_config(self, tmp_path):
        with pytest.raises(SpecError, match=r"is not a model: it has no config\.json"):
            load(tmp_path)

    def test_a_folder_with_only_a_gguf_file(self, tmp_path):
        (tmp_path / "small.gguf").write_bytes(b"GGUF")
        with pytest.raises(SpecError, match=r"it holds small\.gguf: give that file instead"):
            load(tmp_path)

    def test_an_adapter_instead_of_a_model(self, tmp_path):
        (tmp_path / "adapter_config.json").write_text("{}")
        with pytest.raises(SpecError, match="is an adapter, not a model: load its base model with"):
            load(tmp_path)

    def test_a_folder_without_weights(self, folder):
        (folder / "model.safetensors").unlink()
        with pytest.raises(SpecError, match=r"no weights \(model\.safetensors\)"):
            load(folder)

    def test_a_config_that_is_no_json(self, folder):
        (folder / "config.json").write_text("{")
        with pytest.raises(SpecError, match=r"config\.json is not readable as JSON"):
            load(folder)

    def test_a_folder_without_a_tokenizer(self, folder):
        (folder / "tokenizer.json").unlink()
        with pytest.raises(SpecError, match="comes with no tokenizer; pass tokenizer="):
            load(folder)

    def test_an_object_without_a_tokenizer(self):
        with pytest.raises(SpecError, match="This LlamaForCausalLM comes with no tokenizer"):
            load(tiny("llama"))

    def test_an_unknown_tiny_family(self):
        with pytest.raises(SpecError, match="no tiny model of 'lama'; there are gpt2, gptj"):
            load("tiny:lama")


@pytest.mark.usefixtures("nothing_heavy")
class TestFamilies:
    def test_an_encoder(self, folder):
        change_config(folder, model_type="bert", architectures=["BertForMaskedLM"])
        with pytest.raises(SpecError, match=r"encoder-only model \(bert\): it predicts no next"):
            load(folder)

    def test_an_encoder_decoder(self, folder):
        change_config(folder, model_type="t5", is_encoder_decoder=True)
        with pytest.raises(SpecError, match=r"encoder-decoder model \(t5\)"):
            load(folder)

    def test_a_family_that_transformerlens_does_not_know(self, folder):
        change_config(folder, model_type="xlnet", architectures=["XLNetLMHeadModel"])
        with pytest.raises(
            SpecError,
            match=r"XLNetLMHeadModel, which is not supported; supported "
            r"are GPT2LMHeadModel, .*LlamaForCausalLM.* more that TransformerLens",
        ):
            load(folder)

    def test_a_family_that_nobody_knows(self, folder):
        change_config(folder, model_type="hal9000", architectures=["Hal"])
        with pytest.raises(SpecError, match="is a hal9000, which is not supported; supported are"):
            load(folder)

    def test_an_encoder_object(self):
        from transformers import BertConfig, BertForMaskedLM

        with torch.device("meta"):
            model = BertForMaskedLM(BertConfig(num_hidden_layers=1))
        with pytest.raises(SpecError, match=r"encoder-only model \(bert\)"):
            load(model, tokenizer=tiny_tokenizer())

    def test_an_object_without_a_head(self):
        with pytest.raises(SpecError, match="is a LlamaModel, which is not supported; supp"):
            load(tiny("llama").model, tokenizer=tiny_tokenizer())

    def test_an_object_without_weights(self):
        with pytest.raises(SpecError, match=r"no weights in memory \(meta device\)"):
            load(tiny("llama").to("meta"), tokenizer=tiny_tokenizer())

    @pytest.mark.parametrize("method", ["bitsandbytes", "gptq", "awq"])
    def test_a_quantised_checkpoint(self, folder, method):
        change_config(folder, quantization_config={"quant_method": method, "bits": 4})
        with pytest.raises(
            SpecError,
            match=rf"is quantised \({method}\): its packed weights "
            r"cannot be read and written .* at tlkit's sites",
        ):
            load(folder)

    def test_a_quantised_object(self):
        model = tiny("llama")
        weight = model.model.layers[0].mlp.up_proj.weight
        model.model.layers[0].mlp.up_proj.weight = torch.nn.Parameter(
            weight.to(torch.int8), requires_grad=False
        )
        with pytest.raises(SpecError, match=r"is quantised \(packed weights\)"):
            load(model, tokenizer=tiny_tokenizer())


@pytest.mark.usefixtures("nothing_heavy")
class TestWeightFiles:
    def test_safetensors_cut_short(self, folder):
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-1000])
        with pytest.raises(SpecError, match=r"model\.safetensors is cut short: [\d,]+ bytes inst"):
            load(folder)

    def test_safetensors_with_something_behind(self, folder):
        with (folder / "model.safetensors").open("ab") as file:
            file.write(b"more")
        with pytest.raises(SpecError, match="is longer than its header says"):
            load(folder)

    @pytest.mark.parametrize(
        ("data", "why"),
        [
            (b"", "is not a whole safetensors file"),
            (b"<html>404</html>", "is not a whole safetensors file"),
            (struct.pack("<Q", 1 << 60) + b"{}", "is not a whole safetensors file"),
            (struct.pack("<Q", 4) + b"{]{]", "has a damaged safetensors header"),
            (struct.pack("<Q", 9) + b'{"a":"b"}', "has a damaged safetensors header"),
            (
                struct.pack("<Q", 60)
                + b'{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,4]}}'.ljust(60)
                + b"abcd",
                "has a damaged safetensors header",
            ),
        ],
    )
    def test_safetensors_that_are_none(self, folder, data, why):
        (folder / "model.safetensors").write_bytes(data)
        with pytest.raises(SpecError, match=f"{why}; fetch it again"):
            load(folder)

    def test_a_shard_that_is_not_there(self, make_folder):
        folder = make_folder("llama", max_shard_size="100KB")
        gone = sorted(folder.glob("model-*.safetensors"))[1]
        gone.unlink()
        with pytest.raises(SpecError, match=rf"names {gone.name}, which is not in"):
            load(folder)

    def test_a_shard_that_lacks_a_tensor(self, make_folder):
        folder = make_folder("llama", max_shard_size="100KB")
        first, second, *_ = sorted(folder.glob("model-*.safetensors"))
        shutil.copy(second, first)
        with pytest.raises(SpecError, match=rf"{first.name} lacks .*index\.json says it holds"):
            load(folder)

    def test_an_index_without_a_map(self, folder):
        (folder / "model.safetensors").rename(folder / "part.safetensors")
        (folder / "model.safetensors.index.json").write_text('{"metadata": {}}')
        with pytest.raises(SpecError, match=r"index\.json has no weight_map"):
            load(folder)

    def test_a_bin_file_cut_short(self, folder):
        (folder / "model.safetensors").unlink()
        torch.save(tiny("llama").state_dict(), folder / "pytorch_model.bin")
        data = (folder / "pytorch_model.bin").read_bytes()
        (folder / "pytorch_model.bin").write_bytes(data[:-2000])
        with pytest.raises(SpecError, match=r"pytorch_model\.bin is cut short, damaged"):
            load(folder)

    def test_too_little_memory(self, folder, monkeypatch):
        monkeypatch.setattr(memory, "available_memory", lambda _: 600_000)
        with pytest.raises(
            SpecError,
            match=r"needs about 0\.000831 GB in float32 and 0\.0006 GB are free on cpu; try "
            r"dtype='bfloat16' \(half of that\)",
        ):
            load(folder, device="cpu")


def test_half_the_memory_is_enough_for_half_the_bytes(whole, monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda _: 600_000)
    assert load(whole, device="cpu", dtype="bf16").cfg.n_layers == 3
    with pytest.raises(SpecError, match="try a smaller model or another machine"):
        monkeypatch.setattr(memory, "available_memory", lambda _: 300_000)
        load(whole, device="cpu", dtype="bf16")


def test_a_checkpoint_without_a_head_is_not_given_a_random_one(make_folder):
    folder = make_folder("llama")
    shutil.copy(folder / "config.json", folder / "kept.json")
    tiny("llama").model.save_pretrained(folder)
    shutil.copy(folder / "kept.json", folder / "config.json")
    with pytest.raises(
        SpecError,
        match=r"lacks 1 weight\(s\) .*LlamaForCausalLM needs, such as "
        r"lm_head\.weight",
    ):
        load(folder)


class TestKeywords:
    @pytest.mark.parametrize(
        "name",
        [
            "fold_ln",
            "center_unembed",
            "center_writing_weights",
            "fold_value_biases",
            "refactor_factored_attn_matrices",
        ],
    )
    def test_rewriting_weights(self, name):
        with pytest.raises(
            SpecError, match=f"{name} is not taken: tlkit keeps the raw weights, be"
        ):
            load("tiny:llama", **{name: True})

    def test_devices_by_number(self):
        with pytest.raises(SpecError, match="n_devices is not taken: give device_map='auto'"):
            load("tiny:llama", n_devices=2)

    def test_a_keyword_that_nobody_knows(self):
        with pytest.raises(
            SpecError, match="takes no quantise; it takes tokenizer, dtype, device,"
        ):
            load("tiny:llama", quantise=True)

    def test_a_dtype_that_is_none(self):
        with pytest.raises(SpecError, match="dtype 'int8' is not one of float32, bfloat16"):
            load("tiny:llama", dtype="int8")

    def test_a_device_that_is_none(self):
        with pytest.raises(SpecError, match="device 'gpu' is no device; give 'cpu', 'cuda'"):
            load("tiny:llama", device="gpu")

    def test_a_device_that_is_not_there(self):
        with pytest.raises(SpecError, match=r"device 'cuda:99' is not there: PyTorch sees \d GPU"):
            load("tiny:llama", device="cuda:99")

    def test_device_and_device_map(self):
        with pytest.raises(SpecError, match="device and device_map say the same thing twice"):
            load("tiny:llama", device="cpu", device_map="auto")

    def test_revision_of_a_folder(self, whole):
        with pytest.raises(SpecError, match="revision is for models of the hub"):
            load(whole, revision="main")

    def test_adapter_for_an_object(self, tmp_path):
        with pytest.raises(SpecError, match="merge it into the object yourself"):
            load(tiny("llama"), tokenizer=tiny_tokenizer(), adapter=tmp_path)

    def test_device_map_for_an_object(self):
        with pytest.raises(SpecError, match="the object has its place already"):
            load(tiny("llama"), tokenizer=tiny_tokenizer(), device_map="auto")

    def test_a_tokenizer_that_is_none(self):
        with pytest.raises(SpecError, match="tokenizer must be a tokenizer, a folder or a hub id"):
            load("tiny:llama", tokenizer=3)

    def test_another_models_tokenizer(self, whole, embedded):
        with pytest.raises(SpecError, match=r"has 49,152 tokens and .* has embeddings for 512"):
            load(whole, tokenizer=embedded.tokenizer)
