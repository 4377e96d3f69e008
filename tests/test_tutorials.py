"""The tutorials run from start to end outside the repository, and are what their texts say."""

from pathlib import Path

import pytest

jupytext = pytest.importorskip("jupytext")
nbclient = pytest.importorskip("nbclient")

FOLDER = Path(__file__).parents[1] / "tutorials"
TEXTS = sorted(FOLDER.glob("*.py"))
MOST_BYTES = 1_500_000


def sources(notebook):
    return [(cell.cell_type, cell.source.strip()) for cell in notebook.cells]


def test_there_are_ten():
    assert [path.name[:2] for path in TEXTS] == [f"{n:02d}" for n in range(1, 11)]


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_notebook_and_text_are_one(path):
    kept = path.with_suffix(".ipynb")
    notebook = jupytext.read(kept)
    assert sources(notebook) == sources(jupytext.read(path)), "run python scripts/tutorials.py"
    assert kept.stat().st_size < MOST_BYTES
    assert any(cell.get("outputs") for cell in notebook.cells)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_text_asks_expects_asserts_and_says_what_it_does_not_show(path):
    text = path.read_text(encoding="utf-8")
    for needed in ("**Question.**", "**Expect.**", "\nassert ", "**What this does not show.**"):
        assert needed in text, needed


@pytest.mark.slow
@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_runs(path, tmp_path, monkeypatch):
    monkeypatch.setenv("PLOTLY_RENDERER", "json")  # pictures are drawn without a browser
    notebook = jupytext.read(path)
    client = nbclient.NotebookClient(
        notebook,
        timeout=900,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()  # raises where a cell does, its assertions among them
