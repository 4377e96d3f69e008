"""A report is one file that shows everything it was given, as text where it is text."""

import re
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pytest

from tlkit.errors import SpecError
from tlkit.plots.attention import attention
from tlkit.plots.curves import curve
from tlkit.plots.heatmaps import heatmap
from tlkit.plots.report import Section, report
from tlkit.results.schema import build, token_coords

HOSTILE = "</script><b onclick=alert(1)>x</b>"
DATE = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


@pytest.fixture
def ds():
    values = np.random.default_rng(0).normal(size=(1, 3, 2, 4))
    values[0, 2, 1] = 7.0
    return build(
        {"effect": (("metric", "layer", "pos", "example"), values)},
        {
            "metric": ["logit_diff"],
            "metric_units": ("metric", ["logits"]),
            **token_coords([[HOSTILE, " b"]] * 4),
        },
        {
            "study": "patching",
            "model": HOSTILE,
            "spec": '{"layers": [0, 1]}',
            "audit": float("nan"),
        },
    )


@pytest.fixture
def everything(ds):
    picture = attention(np.tril(np.full((2, 2, 2), 0.5)), [HOSTILE, "b"])
    rows = [
        {"layer": 2, "token": HOSTILE, "value": 10.5},
        {"layer": 10, "token": "a", "value": 9.0},
    ]
    return [
        Section("What was found", [f"First {HOSTILE}.\n\nSecond.", ds]),
        Section(HOSTILE, [heatmap(ds), curve(ds["effect"].isel(pos=0)), picture, picture]),
        Section("Rows", [rows, pd.DataFrame({"name": ["n1"], "p": [0.03125]})]),
        Section("How", [{"weight_hash": "abc", "seconds": 12.3456}]),
    ]


def text_of(path):
    return path.read_text(encoding="utf-8")


def test_each_library_is_there_once_and_only_if_needed(ds, everything, tmp_path):
    full = text_of(report(everything, tmp_path / "full.html"))
    assert (full.count("plotly.js v"), full.count("var CircuitsVis=")) == (1, 1)
    plain = text_of(report(["Only text.", [{"a": 1}]], tmp_path / "plain.html"))
    assert len(plain) < 10_000
    figure = text_of(report([heatmap(ds)], tmp_path / "figure.html"))
    assert (figure.count("plotly.js v"), figure.count("var CircuitsVis=")) == (1, 0)


def test_a_full_report_fits_and_repeats_exactly(everything, tmp_path):
    first = report(everything, tmp_path / "a.html", created=DATE)
    second = report(everything, tmp_path / "b.html", created=DATE)
    assert first.stat().st_size <= 8_000_000
    assert text_of(first) == text_of(second)
    assert "2026-01-02 03:04 UTC" in text_of(first)
    later = report(everything, tmp_path / "c.html", created=datetime(2027, 1, 1, tzinfo=UTC))
    assert text_of(later).replace("2027-01-01 00:00", "2026-01-02 03:04") == text_of(first)


def test_everything_is_escaped_outside_and_inside_scripts(everything, tmp_path):
    text = text_of(report(everything, tmp_path / "a.html", title=HOSTILE))
    assert "<b onclick" not in text
    assert text.count("\n<script>") == text.count("</script>")
    outside = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert outside.count("&lt;/script&gt;&lt;b onclick=alert(1)&gt;x&lt;/b&gt;") >= 5


def test_a_dataset_brings_its_top_cells_and_its_provenance(ds, tmp_path):
    text = text_of(report([ds], tmp_path / "a.html"))
    assert '<td class=number data-v="2.0">2</td><td class=number data-v="1.0">1</td>' in text
    assert '<td class=number data-v="7.0">7</td>' in text
    assert "<pre>{\n &quot;layers&quot;: [" in text
    assert "<th>audit</th><td>-</td>" in text


def test_sections_are_listed(everything, tmp_path):
    text = text_of(report(everything, tmp_path / "a.html"))
    assert '<li><a href="#section-3">Rows</a></li>' in text
    assert '<section id="section-3"><h2>Rows</h2>' in text


def test_a_page_over_its_limit_is_refused_and_names_the_heaviest(everything, tmp_path):
    with pytest.raises(SpecError, match=r"has 6\.\d MB and may have 2: '.*' alone has"):
        report(everything, tmp_path / "a.html", limit_mb=2.0)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_shown_is_refused(tmp_path):
    with pytest.raises(SpecError, match="cannot show a set"):
        report([{1, 2}], tmp_path / "a.html")
    with pytest.raises(SpecError, match=r"saved as \.html"):
        report(["x"], tmp_path / "a.pdf")


def test_a_browser_draws_it_all_from_the_file_alone(everything, tmp_path, look):
    path = report(everything, tmp_path / "report.html")
    seen = look(path)
    seen.wait("document.querySelectorAll('.js-plotly-plot .main-svg').length >= 9")
    seen.wait("document.querySelectorAll('.attention canvas').length === 6")
    assert (
        seen.ask("document.querySelectorAll('.heatmaplayer image, .heatmaplayer .hm').length") >= 2
    )
    assert seen.ask("document.querySelectorAll('.scatterlayer .trace').length") >= 1
    ticks = seen.ask("[...document.querySelectorAll('.xtick text')].map(t => t.textContent)")
    assert any(text.startswith("</script") for text in ticks)
    assert seen.ask("document.querySelectorAll('b[onclick]').length") == 0
    assert seen.requests == [path.as_uri()]
    assert (seen.errors, seen.dialogs) == ([], [])


def test_a_click_sorts_a_table_by_number(tmp_path, look):
    seen = look(report([[{"n": 10, "t": "b"}, {"n": 9, "t": "a"}]], tmp_path / "r.html"))
    first = "document.querySelector('tbody tr td').textContent"
    assert seen.ask(first) == "10"
    seen.page.click("th")
    assert seen.ask(first) == "9"
    seen.page.click("th")
    assert seen.ask(first) == "10"


def test_a_mapping_is_headings_and_what_stands_under_them(tmp_path):
    page = report({"What came out": "Nothing much."}, tmp_path / "page.html").read_text()
    assert "What came out</h2>" in page
    assert "Nothing much." in page
