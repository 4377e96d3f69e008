"""Faults to plant: take the first place in the rendered text where the user's words stand; forget
what the template stripped."""

import copy

import pytest

from tlkit.errors import SpecError
from tlkit.prompts.chat import render_user


def with_template(tokenizer, template):
    changed = copy.deepcopy(tokenizer)
    changed.chat_template = template
    return changed


def hf(tokenizer, text):
    return tokenizer.apply_chat_template(
        [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True
    )


def test_the_rendered_text_is_hugging_faces(tiny, smol):
    for tokenizer in (tiny, smol):
        for text in ("Hello", "  two\n", "user", "東京 👩‍👩‍👧", "{{ x }}"):
            found = render_user(tokenizer, text)
            assert found.text == hf(tokenizer, text)
            assert found.text[found.start :].startswith(text)
            assert found.body == text and found.skipped == 0


def test_words_that_the_template_also_holds_are_found_where_the_user_wrote_them(smol):
    # SmolLM2's template writes each of these before the user's own text.
    for text in ("assistant", "user", "You are a helpful AI assistant named SmolLM", "\n", "a"):
        found = render_user(smol, text)
        assert found.start == found.text.index("<|im_start|>user\n") + len("<|im_start|>user\n")


def test_the_words_are_found_where_the_template_writes_them_last(tiny):
    twice = with_template(
        tiny, "Topic: {{ messages[0]['content'] }}\nQ: {{ messages[0].content }}!"
    )
    found = render_user(twice, "cat")
    assert (found.text, found.start) == ("Topic: cat\nQ: cat!", len("Topic: cat\nQ: "))


def test_stripped_white_space_is_counted(tiny):
    trims = with_template(tiny, "[I] {{ messages[0]['content'] | trim }} [/I]")
    found = render_user(trims, " \n cat sat  ")
    assert found == ("[I] cat sat [/I]", "cat sat", 4, 3)
    left = with_template(tiny, "[I]{{ messages[0]['content'].lstrip() }}[/I]")
    assert render_user(left, "  cat ") == ("[I]cat [/I]", "cat ", 3, 2)
    right = with_template(tiny, "[I]{{ messages[0]['content'].rstrip() }}[/I]")
    assert render_user(right, "  cat ") == ("[I]  cat[/I]", "  cat", 3, 0)


def test_a_text_that_holds_the_marker_is_found(tiny):
    for text in ("Zqj", "Zqjqj Zqj", "xZq"):
        found = render_user(tiny, text)
        assert found.text == hf(tiny, text) and found.body == text


def test_a_template_that_rewrites_the_text_is_refused(tiny):
    shouts = with_template(tiny, "[I]{{ messages[0]['content'] | upper }}[/I]")
    with pytest.raises(SpecError, match=r"changes the text 'cat' into '.I.CAT./I.'"):
        render_user(shouts, "cat")
    drops = with_template(tiny, "[I]no words[/I]")
    with pytest.raises(SpecError, match="changes the text 'cat'"):
        render_user(drops, "cat")
