"""A page runs its own scripts and no other."""

import base64
import hashlib
import json
import re

from tlkit.plots.page import as_script, circuitsvis_script, page, plotly_script


def test_the_policy_names_each_script_by_its_hash():
    text = page("t", "<p>body</p>", ["window.a=1", "window.b='é'\r\n"])
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    bodies = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert bodies == ["window.a=1", "window.b='é'\n"]
    for body in bodies:
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]
    assert policy.startswith("default-src 'none'")


def test_values_in_scripts_read_back_and_hold_no_tag():
    value = {"a": "</script><!--\u2028", "b": [1.5, None, "é"]}
    text = as_script(value)
    assert "<" not in text
    assert "\u2028" not in text
    assert json.loads(text) == value


def test_libraries_cannot_end_their_own_element():
    for library in (plotly_script(), circuitsvis_script()):
        assert "</script" not in library
        assert "<!--" not in library


def test_a_browser_refuses_markup_that_got_through(tmp_path, look):
    path = tmp_path / "page.html"
    bad = "<script>window.bad=1</script><img src=x onerror='window.bad=2'>"
    path.write_text(page("t", bad, ["window.good=1"]), encoding="utf-8")
    seen = look(path)
    assert seen.ask("window.good") == 1
    assert seen.ask("window.bad === undefined")
