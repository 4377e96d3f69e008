"""`tlkit report` shows what saved results hold, and refuses what it cannot show.

Faults to plant: the second result shown in place of the first; a citation of another study.
"""

import json

import numpy as np
import pytest

from tlkit.cli.app import main
from tlkit.prompts.prompts import Prompts
from tlkit.results.files import save
from tlkit.spec.insertions import Insert
from tlkit.studies import conditions, patching, variance

TEXTS = ["The cat sat on the mat.", "Who wrote the book?"]


@pytest.fixture(scope="module")
def stores(tiny_bridge, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")
    model = tiny_bridge("llama3")
    pairs = Prompts.from_pairs(model, ["The cat sat"], ["The dog sat"], [" on"], [" in"])
    made = {
        "patching": patching.run(model, pairs, "resid_pre"),
        "conditions": conditions.run(
            model, Prompts.from_texts(model, TEXTS), {"Miess": Insert("/ ", at="start")}
        ),
        "variance": variance.run({"original": model}, [TEXTS[0] * 20, TEXTS[1] * 20], window=4),
    }
    return {name: (save(ds, folder / f"{name}.zarr"), ds) for name, ds in made.items()}


def test_results_are_drawn_with_their_provenance_and_what_to_cite(stores, tmp_path, capsys, look):
    page = tmp_path / "page.html"
    paths = [str(path) for path, _ in stores.values()]
    assert main(["report", *paths, "--out", str(page), "--title", "All <of> it", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["results"] == paths
    seen = look(page)
    seen.wait("document.querySelectorAll('.js-plotly-plot').length === 3")
    assert (seen.errors, seen.dialogs) == ([], [])
    assert len(seen.requests) == 1
    text = page.read_text(encoding="utf-8")
    assert "All &lt;of&gt; it" in text
    for source in ("2202.05262", "2510.01032", "2503.12491"):
        assert source in text
    assert "2406.11717" not in text  # of a study that is not there
    drawn = seen.ask("[...document.querySelectorAll('.js-plotly-plot')].map(p => p.data.length)")
    assert all(drawn)


def test_the_figure_of_a_variance_study_is_its_mean_over_heads_and_documents(stores):
    from tlkit.plots import plot

    _, ds = stores["variance"]
    figure = plot(ds)
    wanted = ds["layer_variance"].sel(kind="temporal", model="original").mean("document").values
    shown = [trace for trace in figure.data if trace.mode != "lines" or trace.name]
    assert any(np.allclose(trace.y, wanted, rtol=1e-5) for trace in shown)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing.zarr", "--out", "p.html"], "no results at nothing.zarr"),
        (["a.zarr", "--out", "p.pdf"], "must end in .html"),
        (["a.zarr", "a.zarr", "--out", "p.html"], "given twice"),
    ],
)
def test_bad_requests_are_one_line(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["report", *words]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and message in said[0]


def test_a_page_that_is_there_is_kept(stores, tmp_path, capsys):
    page = tmp_path / "page.html"
    page.write_text("mine")
    assert main(["report", str(stores["patching"][0]), "--out", str(page)]) == 2
    assert page.read_text() == "mine"
