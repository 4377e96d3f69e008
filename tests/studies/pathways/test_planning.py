"""Plans of models that are loaded and of models that are not."""

import pytest

import tlkit as tk
from tlkit.errors import SpecError
from tlkit.models.outline import outline
from tlkit.models.tiny import FAMILIES, tiny, tiny_tokenizer
from tlkit.studies.pathways import plan


@pytest.fixture
def folder(tmp_path):
    tiny("qwen3").config.save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.parametrize("parts", [("group", "intervention"), tk.pathways.PARTS])
def test_a_config_alone_gives_the_same_plan(tiny_bridge, asked, folder, parts):
    known, model = outline(folder), tiny_bridge("qwen3")
    one, other = (plan(it, asked, parts=parts).as_dict() for it in (known, model))
    assert one.pop("seconds") > 0
    other.pop("seconds")
    assert one == other
    assert one["weight_bytes"] == 4 * sum(p.numel() for p in model.parameters())


def test_without_a_tokenizer_tokens_are_reckoned(asked, tmp_path):
    tiny("llama").config.save_pretrained(tmp_path)
    found = plan(outline(tmp_path, dtype="bfloat16"), asked)
    assert not found.tokens_known
    assert "about" in str(found).partition("prompt tokens")[0]
    letters = sum(len(f"Q: {q.question}\nA:") for q in asked)
    assert letters / 4 <= found.prompt_tokens <= letters / 4 + len(asked)
    assert found.weight_bytes == 2 * sum(p.numel() for p in tiny("llama").parameters())


@pytest.mark.parametrize("family", FAMILIES)
def test_every_familys_config_tells_its_sizes(family, tmp_path, tiny_bridge):
    from tlkit.models.bridge import Parts

    tiny(family).config.save_pretrained(tmp_path)
    known, parts = outline(tmp_path), Parts(tiny_bridge(family))
    for name in ("n_layers", "n_heads", "d_head", "d_model"):
        assert getattr(known, name) == getattr(parts, name), name
    model = tiny(family)  # a hooked model splits what is fused, and so holds it twice
    assert known.weights == sum(p.numel() for p in model.parameters())
    blocks = [type(block).__name__ for block in parts.blocks]
    assert [type(block).__name__ for block in known.blocks] == blocks


def test_parts_cost_more_and_given_answers_less(tiny_bridge, asked):
    model = tiny_bridge("llama")
    usual = plan(model, asked)
    assert plan(model, asked, parts=tk.pathways.PARTS).flops > usual.flops
    given = plan(model, tk.pathways.own_questions(60), answers="given")
    assert given.new_tokens == 0
    assert given.questions["our own questions"] % 4 == 0


def test_a_folder_without_a_config_is_refused(tmp_path):
    with pytest.raises(SpecError, match="has no config"):
        outline(tmp_path)
