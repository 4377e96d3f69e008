"""Attention pictures: the right numbers, refused when wrong, small, and never markup."""

import html
import json
import re
import time

import numpy as np
import pytest
import torch

from tlkit.errors import SpecError
from tlkit.plots.attention import attention, attention_page

HOSTILE = "</script><b>x<img src=x onerror=alert(1)>"
SHOWN = "</script><b…r=alert(1)>"
BUNDLE = 1_296_000


def causal(heads, length, seed=0):
    weights = np.tril(np.random.default_rng(seed).random((heads, length, length)))
    return weights / weights.sum(-1, keepdims=True)


def props(picture):
    call = picture.script("here")
    return json.loads(re.search(r"AttentionHeads,(.*)\);$", call, re.DOTALL)[1])


def test_the_page_holds_the_rounded_weights_of_the_chosen_heads():
    pattern = causal(3, 4)
    picture = attention(pattern, list("abcd"), heads=[2, 0], names=["two", "zero"])
    given = props(picture)
    np.testing.assert_allclose(given["attention"], pattern[[2, 0]], atol=5.1e-5)
    assert given["attentionHeadNames"] == ["two", "zero"]
    assert given["tokens"] == list("abcd")
    assert given["maskUpperTri"] is True
    assert given["maxValue"] == 1.0
    assert max(len(n) for n in re.findall(r"[\d.]+", json.dumps(given["attention"]))) <= 6


def test_attention_to_later_keys_is_not_masked_away():
    assert props(attention(np.full((1, 2, 2), 0.5), ["a", "b"]))["maskUpperTri"] is False


def test_one_head_and_half_precision_tensors_are_taken():
    pattern = torch.tril(torch.ones(3, 3, dtype=torch.bfloat16)) / 2
    pattern.requires_grad_()
    assert props(attention(pattern, list("abc")))["attention"] == [
        [[0.5, 0, 0], [0.5, 0.5, 0], [0.5, 0.5, 0.5]]
    ]


@pytest.mark.parametrize(
    ("pattern", "tokens", "arguments", "message"),
    [
        (np.zeros((1, 4, 4)), ["a", "b"], {}, "covers 4 positions and 2 tokens were given"),
        (np.zeros((1, 1, 4, 4)), list("abcd"), {}, "got 1 × 1 × 4 × 4"),  # noqa: RUF001
        (np.zeros((2, 3, 4)), list("abc"), {}, "as many queries as keys"),
        (np.full((1, 2, 2), np.nan), ["a", "b"], {}, "NaN or infinite weights"),
        (np.full((1, 2, 2), np.inf), ["a", "b"], {}, "NaN or infinite weights"),
        (-np.ones((1, 2, 2)), ["a", "b"], {}, "pattern after the softmax"),
        (
            np.zeros((2, 2, 2)),
            ["a", "b"],
            {"heads": [2]},
            "no head 2: the pattern has heads 0 to 1",
        ),
        (np.zeros((2, 2, 2)), ["a", "b"], {"heads": []}, "No head was chosen"),
        (np.zeros((2, 2, 2)), ["a", "b"], {"names": ["x"]}, "1 names were given for 2 heads"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(pattern, tokens, arguments, message):
    with pytest.raises(SpecError, match=message):
        attention(pattern, tokens, **arguments)


def test_the_usual_large_picture_is_small_and_says_what_was_reduced():
    picture = attention(causal(12, 256), [f" t{i}" for i in range(256)])
    assert len(attention_page([picture]).encode()) < BUNDLE + 600_000
    assert "256 tokens are shown as 86 groups of 3" in picture.note
    assert "256 tokens are shown as 86 groups" in picture.fragment("here")
    np.testing.assert_allclose(np.sum(picture.values, axis=-1), 1.0, atol=0.05)


def test_too_many_heads_are_cut_and_named():
    picture = attention(causal(40, 8), list("abcdefgh"))
    assert len(picture.values) == 16
    assert picture.names[15] == "head 15"
    assert "first 16 of 40 heads" in picture.note


def test_two_thousand_tokens_take_seconds():
    start = time.perf_counter()
    picture = attention(causal(2, 2000), ["a"] * 2000)
    assert len(attention_page([picture]).encode()) < BUNDLE + 400_000
    assert time.perf_counter() - start < 30


def test_no_token_can_end_the_script():
    picture = attention(causal(1, 2), [HOSTILE, "b"], names=[HOSTILE], title=HOSTILE)
    page = attention_page([picture])
    assert "</script><b>" not in page
    assert "<img" not in page
    assert page.count("</script>") == page.count("\n<script>") == 3
    assert props(picture)["tokens"] == [SHOWN, "b"]
    assert props(picture)["attentionHeadNames"] == [HOSTILE]
    assert html.escape(HOSTILE) in picture.fragment("here")


def test_the_library_is_there_once_and_nothing_is_fetched():
    page = attention_page([attention(causal(1, 3), list("abc")) for _ in range(3)])
    assert page.count("var CircuitsVis=") == 1
    assert page.count("CircuitsVis.render(") == 3 + _own_calls()
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=", page)
    assert "sourceMappingURL" not in page
    assert "default-src 'none'" in page


def _own_calls():
    from tlkit.plots.page import circuitsvis_script

    return circuitsvis_script().count("CircuitsVis.render(")


def test_a_notebook_gets_a_frame_of_its_own():
    markup = attention(causal(1, 2), [HOSTILE, "b"])._repr_html_()
    assert markup.startswith('<iframe srcdoc="')
    assert markup.count("<") == 2
    assert "&lt;!doctype html&gt;" in markup


def test_saving_asks_for_a_page(tmp_path):
    picture = attention(causal(1, 2), ["a", "b"])
    with pytest.raises(SpecError, match=r"saved as \.html: name it .*x\.html"):
        picture.save(tmp_path / "x.png")
    with pytest.raises(SpecError, match=r"folder .* does not exist"):
        picture.save(tmp_path / "none" / "x.html")


def test_a_browser_draws_every_picture_and_shows_tokens_as_text(tmp_path, look):
    first = attention(causal(2, 3), [HOSTILE, " same", "\n"], names=["a", HOSTILE])
    second = attention(causal(3, 4), list("wxyz"), title=HOSTILE)
    path = tmp_path / "page.html"
    path.write_text(attention_page([first, second]), encoding="utf-8")
    seen = look(path)
    seen.wait("document.querySelectorAll('canvas').length === 7")  # 2 + 1 and 3 + 1
    seen.wait("window.drawn.some(text => text.startsWith('z'))")
    drawn = seen.ask("window.drawn")
    assert {f"{SHOWN} (0)", "·same (1)", "\\n (2)"} <= set(drawn)
    assert seen.ask("document.querySelectorAll('main img, b, .attention img').length") == 0
    painted = "c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(v => v)"
    assert seen.ask(f"[...document.querySelectorAll('canvas')].every({painted})")
    assert HOSTILE in seen.ask("document.body.innerText")
    assert seen.requests == [path.as_uri()]
    assert (seen.dialogs, seen.errors) == ([], [])


def test_a_notebook_frame_grows_to_its_picture(tmp_path, look):
    path = tmp_path / "notebook.html"
    path.write_text("<!doctype html>" + attention(causal(1, 12), ["a"] * 12)._repr_html_())
    seen = look(path)
    inner = "document.querySelector('iframe').contentDocument"
    seen.wait(f"{inner}.querySelectorAll('canvas').length === 2")
    seen.wait(
        f"Math.abs(document.querySelector('iframe').clientHeight - "
        f"{inner}.documentElement.scrollHeight) < 3"
    )
    assert [url for url in seen.requests if not url.startswith(("file:", "about:"))] == []
