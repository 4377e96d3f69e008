"""LoRA adapters are merged as peft merges them, and refused where they do not fit."""

import copy
import json

import pytest
import torch

from tlkit.errors import SpecError
from tlkit.models.load import HookedTransformer
from tlkit.models.tiny import tiny


def make_adapter(model, folder, **options):
    """Save a LoRA whose two matrices are both random, so that merging it changes something."""
    from peft import LoraConfig, get_peft_model

    targets = options.pop("target_modules", ["q_proj", "up_proj"])
    config = LoraConfig(r=4, lora_alpha=16, target_modules=targets, task_type="CAUSAL_LM")
    with torch.random.fork_rng():
        torch.random.default_generator.manual_seed(0)
        wrapped = get_peft_model(copy.deepcopy(model), config)
        for name, weight in wrapped.named_parameters():
            if "lora_" in name:
                torch.nn.init.normal_(weight, std=0.1)
    wrapped.save_pretrained(folder)
    return wrapped


def logits_of(model, ids):
    with torch.no_grad():
        out = model(ids)
    return getattr(out, "logits", out)


@pytest.mark.parametrize(
    ("family", "targets"), [("llama", ["q_proj", "up_proj"]), ("gpt2", ["c_attn", "c_fc"])]
)
def test_a_merged_adapter_gives_the_logits_of_pefts_own_merge(
    make_folder, tmp_path, ids, family, targets
):
    wrapped = make_adapter(tiny(family), tmp_path / "lora", target_modules=targets)
    merged = wrapped.merge_and_unload()
    model = HookedTransformer.from_pretrained(make_folder(family), adapter=tmp_path / "lora")
    torch.testing.assert_close(logits_of(model, ids), logits_of(merged, ids), atol=1e-5, rtol=0)
    assert (logits_of(model, ids) - logits_of(tiny(family), ids)).abs().max() > 0.1
    assert type(model.original_model) is type(merged)


def test_an_adapter_that_is_not_there(make_folder, tmp_path):
    folder = make_folder("llama")
    with pytest.raises(SpecError, match=r"There is no adapter folder .*lora"):
        HookedTransformer.from_pretrained(folder, adapter=tmp_path / "lora")
    (tmp_path / "lora").mkdir()
    with pytest.raises(SpecError, match=r"is not an adapter: it has no adapter_config\.json"):
        HookedTransformer.from_pretrained(folder, adapter=str(tmp_path / "lora"))


def test_an_adapter_without_weights_or_of_another_type(make_folder, tmp_path):
    folder = make_folder("llama")
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    with pytest.raises(SpecError, match=r"but no adapter_model\.safetensors"):
        HookedTransformer.from_pretrained(folder, adapter=tmp_path)
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "PREFIX_TUNING"}')
    with pytest.raises(SpecError, match="adapter of type PREFIX_TUNING; only LoRA can be merged"):
        HookedTransformer.from_pretrained(folder, adapter=tmp_path)


def test_an_adapter_cut_short(make_folder, tmp_path):
    make_adapter(tiny("llama"), tmp_path)
    path = tmp_path / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(SpecError, match=r"adapter_model\.safetensors is cut short"):
        HookedTransformer.from_pretrained(make_folder("llama"), adapter=tmp_path)


def test_an_adapter_for_another_width(make_folder, tmp_path):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
        vocab_size=512,
    )  # fmt: skip
    make_adapter(LlamaForCausalLM(config), tmp_path)
    settings = json.loads((tmp_path / "adapter_config.json").read_text())
    settings["base_model_name_or_path"] = "acme/small"
    (tmp_path / "adapter_config.json").write_text(json.dumps(settings))
    with pytest.raises(
        SpecError,
        match=r"does not fit .*: it was made for acme/small, whose model\.layers\.\d\.\S+ is \d+ "
        r"wide, where it is \d+ x \d+ here",
    ):
        HookedTransformer.from_pretrained(make_folder("llama"), adapter=tmp_path)


def test_an_adapter_for_another_family(make_folder, tmp_path):
    make_adapter(tiny("gpt2"), tmp_path, target_modules=["c_attn"])
    with pytest.raises(SpecError, match=r"and there is no transformer\.h\.0\.attn\.c_attn here"):
        HookedTransformer.from_pretrained(make_folder("llama"), adapter=tmp_path)
