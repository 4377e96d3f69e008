"""A saved picture is the figure, made without a network or refused in a sentence."""

import struct
import subprocess

import numpy as np
import pytest

from tlkit.errors import EngineError, SpecError
from tlkit.plots import saving
from tlkit.plots.heatmaps import heatmap
from tlkit.results.schema import build


@pytest.fixture(scope="module")
def figure():
    ds = build({"kl": (("layer", "head"), np.eye(3))}, {"layer": [4, 5, 6]})
    return heatmap(ds, title="A <title>")


def test_a_page_has_the_figure_and_the_library(figure, tmp_path):
    text = saving.save(figure, tmp_path / "f.html").read_text(encoding="utf-8")
    assert text.count("plotly.js v") == 1
    assert "A \\u003ctitle" not in text.split("<body>")[0]
    assert "KL divergence" not in text.split("<body>")[0]
    assert 'Plotly.newPlot("figure"' in text


@pytest.mark.skipif(saving.find_browser() is None, reason="no Chromium on this machine")
def test_png_and_svg_are_drawn_by_the_browser(figure, tmp_path):
    png = saving.save(figure, tmp_path / "f.png", width=400, height=300, scale=2.0).read_bytes()
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", png[16:24]) == (800, 600)
    svg = saving.save(figure, tmp_path / "f.svg").read_text(encoding="utf-8")
    assert svg.startswith("<svg")
    assert "A &#60;title&#62;" in svg or "A &lt;title&gt;" in svg
    assert sorted(p.name for p in tmp_path.iterdir()) == ["f.png", "f.svg"]


def test_without_a_browser_a_picture_is_refused_and_a_page_is_not(figure, tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "find_browser", lambda: None)
    with pytest.raises(SpecError, match=r"\.png needs Chromium or Chrome, which was not found"):
        saving.save(figure, tmp_path / "f.png")
    assert saving.save(figure, tmp_path / "f.html").exists()


def test_the_named_browser_is_used_and_its_failure_is_told(figure, tmp_path, monkeypatch):
    broken = tmp_path / "browser"
    broken.write_text("#!/bin/sh\necho '<html></html>'\n")
    broken.chmod(0o755)
    monkeypatch.setenv("TLKIT_BROWSER", str(broken))
    with pytest.raises(EngineError, match="browser gave no picture"):
        saving.save(figure, tmp_path / "f.png")

    def hangs(*_args, **_kwargs):
        raise subprocess.TimeoutExpired("browser", 1)

    monkeypatch.setattr(subprocess, "run", hangs)
    with pytest.raises(EngineError, match="browser gave no picture"):
        saving.save(figure, tmp_path / "f.svg")


def test_another_ending_is_refused(figure, tmp_path):
    with pytest.raises(SpecError, match=r"\.html, \.png or \.svg, not as '\.pdf'"):
        saving.save(figure, tmp_path / "f.pdf")
