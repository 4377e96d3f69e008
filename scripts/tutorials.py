"""Run the tutorials and keep their outputs: tutorials/*.py (to be read and edited) to *.ipynb.

python scripts/tutorials.py             # all; needs kaleido and a Chromium for the pictures
python scripts/tutorials.py 02 05       # some
"""

import os
import sys
import tempfile
import time
from pathlib import Path

import jupytext
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "tutorials"
MOST_HTML = 100_000
KEPT = ("text/plain", "text/html", "text/markdown", "image/png")


def main() -> None:
    """Run, thin out, write."""
    os.environ["PLOTLY_RENDERER"] = "png"
    for path in sorted(FOLDER.glob("*.py")):
        if sys.argv[1:] and not path.name.startswith(tuple(sys.argv[1:])):
            continue
        notebook = jupytext.read(path)
        notebook.metadata["kernelspec"] = {
            "display_name": "Python 3", "language": "python", "name": "python3",
        }  # fmt: skip
        started = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            NotebookClient(
                notebook, timeout=600, resources={"metadata": {"path": folder}}
            ).execute()
        print(f"{path.stem}: {time.perf_counter() - started:.0f} s")
        for number, cell in enumerate(notebook.cells):
            cell["id"] = f"cell-{number}"
            cell.metadata = {}
            if cell.cell_type == "code":
                cell.outputs = [out for out in map(thinned, cell.outputs) if out]
        notebook.metadata.pop("widgets", None)
        jupytext.write(notebook, path.with_suffix(".ipynb"), fmt="ipynb")


def thinned(output):
    """An output without what is large or changes from run to run; None if nothing is left."""
    if output.output_type == "stream":
        return output if output.name == "stdout" else None
    data = output.get("data", {})
    for kind, value in list(data.items()):
        # circuitsvis brings its library along with each picture: seen when the notebook is run.
        if kind not in KEPT or (kind == "text/html" and len(value) > MOST_HTML):
            del data[kind]
    output["metadata"] = {}
    return output if data or output.output_type == "error" else None


if __name__ == "__main__":
    main()
