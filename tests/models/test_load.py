"""Models come out of `from_pretrained` with Hugging Face's numbers, whatever they were."""

import copy

import pytest
import torch

import tlkit as tk
from tlkit.errors import SpecError
from tlkit.models.info import info
from tlkit.models.load import HookedTransformer
from tlkit.models.tiny import FAMILIES, tiny, tiny_tokenizer


def logits_of(model, ids):
    with torch.no_grad():
        out = model(ids)
    return getattr(out, "logits", out)


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_hugging_face(family, tiny_bridge, ids):
    theirs = logits_of(tiny(family), ids)
    ours = logits_of(tiny_bridge(family), ids)
    assert theirs.std() > 0.3, "the tiny model says next to nothing"
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


@pytest.mark.slow
def test_the_embedded_model_is_the_gguf_file_as_transformers_reads_it(embedded):
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    from tlkit.models.embedded import find_gguf
    from tlkit.models.files import Place, gguf_read_once

    file, _, _ = find_gguf()
    with gguf_read_once(Place.of_gguf(file)):  # a third of the time
        theirs = AutoModelForCausalLM.from_pretrained(
            file.parent,
            gguf_file=file.name,
            dtype=torch.float32,
            quantization_config=GgufConfig(dequantize=True),
            attn_implementation="eager",
            local_files_only=True,
        )
    tokenizer = AutoTokenizer.from_pretrained(
        file.parent, gguf_file=file.name, local_files_only=True
    )
    text = "When Mary and John went to the store, Mary gave a drink to"
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    assert embedded.to_tokens(text).tolist() == ids.tolist()
    torch.testing.assert_close(logits_of(embedded, ids), logits_of(theirs, ids), atol=1e-4, rtol=0)
    best = logits_of(embedded, ids)[0, -1].argmax()
    assert tokenizer.decode(best) == " John"


def test_a_loaded_model_is_a_hooked_transformer_in_eval_mode_without_gradients(tiny_bridge):
    model = tiny_bridge("llama")
    assert isinstance(model, HookedTransformer)
    assert isinstance(model, tk.HookedTransformer)
    assert not isinstance(tiny("llama"), HookedTransformer)
    assert not any(module.training for module in model.modules())
    assert not any(weight.requires_grad for weight in model.parameters())
    assert model.original_model.config.architectures == ["LlamaForCausalLM"]


def test_gradients_come_when_asked_for(ids):
    model = HookedTransformer.from_pretrained("tiny:llama", requires_grad=True)
    model(ids).sum().backward()
    assert model.blocks[0].attn.q.weight.grad.abs().sum() > 0


def test_the_class_itself_makes_no_model():
    with pytest.raises(SpecError, match="from_pretrained"):
        HookedTransformer("gpt2")


def test_a_saved_folder_gives_the_same_logits(make_folder, ids):
    folder = make_folder("qwen3")
    model = HookedTransformer.from_pretrained(folder)
    torch.testing.assert_close(
        logits_of(model, ids), logits_of(tiny("qwen3"), ids), atol=1e-5, rtol=0
    )
    assert info(model).source == str(folder)
    assert model.to_tokens("Mary").tolist() == [tiny_tokenizer()("Mary")["input_ids"]]


def test_a_folder_in_shards_gives_the_same_logits(make_folder, ids):
    folder = make_folder("llama", max_shard_size="100KB")
    assert (folder / "model.safetensors.index.json").is_file()
    model = HookedTransformer.from_pretrained(str(folder))
    torch.testing.assert_close(
        logits_of(model, ids), logits_of(tiny("llama"), ids), atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("dtype", ["bfloat16", torch.float16])
def test_dtype_changes_weights_and_not_rotary_frequencies(make_folder, ids, dtype):
    from transformers import AutoModelForCausalLM

    folder = make_folder("llama3")
    wanted = getattr(torch, dtype) if isinstance(dtype, str) else dtype
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=wanted, attn_implementation="eager")
    for source in (folder, "tiny:llama3"):
        model = HookedTransformer.from_pretrained(source, dtype=dtype)
        assert {weight.dtype for weight in model.parameters()} == {wanted}
        assert model.original_model.model.rotary_emb.inv_freq.dtype == torch.float32
        assert torch.equal(logits_of(model, ids), logits_of(theirs, ids))
        assert info(model).dtype == str(wanted).removeprefix("torch.")


def test_a_hugging_face_object_is_used_as_it_is(ids):
    theirs = tiny("gpt2").train()
    theirs.requires_grad_(True)
    wanted = logits_of(copy.deepcopy(theirs).eval(), ids)
    model = HookedTransformer.from_pretrained(theirs, tokenizer=tiny_tokenizer())
    assert model.original_model is theirs
    assert not theirs.training
    assert not any(weight.requires_grad for weight in theirs.parameters())
    torch.testing.assert_close(logits_of(model, ids), wanted, atol=1e-5, rtol=0)
    torch.testing.assert_close(logits_of(theirs, ids), wanted, atol=1e-5, rtol=0)


def test_an_object_loaded_twice_still_gives_its_logits_and_fires_its_hooks(ids):
    theirs = tiny("llama3")
    wanted = logits_of(copy.deepcopy(theirs), ids)
    for _ in range(2):
        model = HookedTransformer.from_pretrained(theirs, tokenizer=tiny_tokenizer())
        torch.testing.assert_close(logits_of(model, ids), wanted, atol=1e-5, rtol=0)
    _, cache = model.run_with_cache(ids)
    assert cache["blocks.1.attn.hook_pattern"].sum(-1).allclose(torch.ones(()), atol=1e-5)


def test_an_object_finds_the_tokenizer_of_the_folder_that_it_came_from(make_folder):
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_pretrained(make_folder("llama"))
    model = HookedTransformer.from_pretrained(theirs)
    assert model.to_tokens("Mary").tolist() == [tiny_tokenizer()("Mary")["input_ids"]]


def test_a_transformerlens_model_is_taken_over(make_folder, ids):
    from transformer_lens.model_bridge import TransformerBridge

    theirs = TransformerBridge.boot_transformers(str(make_folder("llama")), device="cpu")
    model = HookedTransformer.from_pretrained(theirs)
    assert model is theirs
    torch.testing.assert_close(
        logits_of(model, ids), logits_of(tiny("llama"), ids), atol=1e-5, rtol=0
    )
    assert model.to_tokens("Mary").tolist() == [tiny_tokenizer()("Mary")["input_ids"]]


def test_a_transformerlens_model_in_compatibility_mode_is_refused(make_folder):
    from transformer_lens.model_bridge import TransformerBridge

    theirs = TransformerBridge.boot_transformers(str(make_folder("llama")), device="cpu")
    theirs.enable_compatibility_mode(disable_warnings=True)
    with pytest.raises(SpecError, match=r"compatibility mode.*raw weights"):
        HookedTransformer.from_pretrained(theirs)


def test_code_that_comes_with_a_model_runs_only_when_trusted(make_folder, ids):
    import json

    folder = make_folder("llama")
    config = json.loads((folder / "config.json").read_text())
    config |= {
        "model_type": "my_llama",
        "auto_map": {
            "AutoConfig": "mine.MyConfig",
            "AutoModelForCausalLM": "mine.LlamaForCausalLM",
        },
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "mine.py").write_text(
        "from transformers import LlamaConfig\n"
        "from transformers import LlamaForCausalLM as Base\n"
        "class MyConfig(LlamaConfig):\n"
        "    model_type = 'my_llama'\n"
        "class LlamaForCausalLM(Base):\n"
        "    config_class = MyConfig\n"
    )
    with pytest.raises(SpecError, match=r"code of its own .*my_llama.*trust_remote_code=True"):
        HookedTransformer.from_pretrained(folder)
    model = HookedTransformer.from_pretrained(folder, trust_remote_code=True)
    torch.testing.assert_close(
        logits_of(model, ids), logits_of(tiny("llama"), ids), atol=1e-5, rtol=0
    )


def test_a_device_map_spreads_the_model_and_changes_no_number(make_folder, ids):
    model = HookedTransformer.from_pretrained(make_folder("llama"), device_map="auto")
    torch.testing.assert_close(
        logits_of(model, ids.to(model.cfg.device)).cpu(),
        logits_of(tiny("llama"), ids),
        atol=1e-5,
        rtol=0,
    )
    assert model.cfg.n_devices == 1


@pytest.mark.parametrize("family", ["llama", "gptj", "gemma3"])
def test_generation_with_a_cache_says_what_it_says_without(family, tiny_bridge, ids):
    """Some versions of transformers break TransformerLens's cache without a word."""
    model = tiny_bridge(family)
    options = {"max_new_tokens": 10, "do_sample": False, "verbose": False, "stop_at_eos": False}
    cached = model.generate(ids, use_past_kv_cache=True, **options)
    uncached = model.generate(ids, use_past_kv_cache=False, **options)
    with torch.no_grad():
        known = ids
        for _ in range(10):
            best = tiny(family)(known).logits[:, -1].argmax(-1, keepdim=True)
            known = torch.cat([known, best], dim=1)
    assert uncached.tolist() == known.tolist()
    assert cached.tolist() == known.tolist()


def test_gemma_3_with_eyes_is_read_as_a_language_model(ids):
    from transformers import AutoModelForCausalLM, Gemma3Config

    text = tiny("gemma3").config.to_dict()
    vision = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
    config = Gemma3Config(
        text_config=text,
        vision_config=vision | {"num_attention_heads": 2, "image_size": 28, "patch_size": 14},
        mm_tokens_per_image=4,
        image_token_index=500,
        boi_token_index=501,
        eoi_token_index=502,
    )
    with torch.random.fork_rng():
        theirs = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    wanted = logits_of(copy.deepcopy(theirs), ids)
    model = HookedTransformer.from_pretrained(theirs, tokenizer=tiny_tokenizer())
    torch.testing.assert_close(logits_of(model, ids), wanted, atol=1e-5, rtol=0)
