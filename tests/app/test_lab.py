"""`tk.explore` in JupyterLab, in Chromium: a notebook is run, and a cell of the map clicked.

Faults to plant: send through another channel; let the notebook's own shortcuts have the keys.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tlkit.engine.run import run
from tlkit.models.cache import cache_dir
from tlkit.models.load import HookedTransformer
from tlkit.prompts.prompts import Prompts
from tlkit.spec.interventions import Patch
from tlkit.spec.metrics import LogitDiff
from tlkit.spec.sites import Site
from tlkit.spec.sweeps import Condition, Sweep

ROOT = ".tlkit-explorer"
TUTORIAL = Path(__file__).parents[2] / "tutorials" / "08_patch_interactively.ipynb"
MADE = 'model, ["The cat sat in Rome and"], ["The dog sat in Rome and"], ["Tom"], ["Mary"]'
CODE = f"""import tlkit as tk

model = tk.HookedTransformer.from_pretrained("tiny:llama3", device="cpu")
prompts = tk.Prompts.from_pairs({MADE})
tk.explore(model, prompts)"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """JupyterLab in a folder with two notebooks; a function from a notebook to its address.

    Each has a workspace of its own: otherwise the second page opens both.
    """
    pytest.importorskip("jupyterlab")
    folder = tmp_path_factory.mktemp("lab")
    cell = {"cell_type": "code", "id": "a", "metadata": {}, "execution_count": None, "outputs": [],
            "source": CODE}  # fmt: skip
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    book = {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": [cell]}
    (folder / "book.ipynb").write_text(json.dumps(book))
    shutil.copy(TUTORIAL, folder / "tutorial.ipynb")
    own = {f"JUPYTER_{name}_DIR": str(folder / name) for name in ("CONFIG", "DATA", "RUNTIME")}
    own |= {"IPYTHONDIR": str(folder / "ipython"), "OMP_NUM_THREADS": "1", "HOME": str(folder)}
    own["TLKIT_CACHE"] = str(cache_dir())  # the embedded model is unpacked once
    log = folder / "log.txt"
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root",
             "--ServerApp.ip=127.0.0.1", "--ServerApp.port=0", f"--ServerApp.root_dir={folder}",
             "--IdentityProvider.token=secret", "--LabApp.news_url=None"],
            stdout=out, stderr=out, env={**os.environ, **own}, cwd=folder,
        )  # fmt: skip
    try:
        address = _address(process, folder, log)
        yield lambda name: f"{address}lab/workspaces/{name}/tree/{name}.ipynb?token=secret"
    finally:
        process.terminate()
        process.wait(timeout=60)


def _address(process, folder, log):
    """What the server has written of itself."""
    import time

    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        for path in (folder / "RUNTIME").glob("jpserver-*.json"):
            # The file is there before the server listens.
            with contextlib.suppress(OSError, ValueError):
                url = json.loads(path.read_text())["url"]
                with urllib.request.urlopen(f"{url}api?token=secret", timeout=30):
                    return url
        time.sleep(0.2)
    raise AssertionError(log.read_text())


def run_first_cell(at):
    """Run it once the kernel is there: before, the key is taken and nothing is run."""
    at.get_by_text("| Idle").wait_for()
    at.locator(".jp-Notebook .jp-CodeCell .cm-content").first.click()
    at.keyboard.press("Shift+Enter")


@pytest.mark.slow
def test_a_cell_is_clicked_in_jupyterlab(lab, look):
    seen = look(lab("book"))
    at = seen.page
    run_first_cell(at)
    at.wait_for_selector(f'{ROOT}[data-idle="true"]')
    at.locator(f'{ROOT} td[data-layer="1"][data-at="2"]').click()
    at.wait_for_selector(f'{ROOT}[data-picks="1"][data-idle="true"]')
    model = HookedTransformer.from_pretrained("tiny:llama3", device="cpu")
    prompts = Prompts.from_pairs(model, ["The cat sat in Rome and"], ["The dog sat in Rome and"],
                                 ["Tom"], ["Mary"])  # fmt: skip

    def effect(pos):
        patch = Patch(Site("resid_pre", layer=1, pos=pos))
        found = run(model, prompts, Sweep.over([Condition("asked", (patch,))]), LogitDiff())
        return float(found["effect"].squeeze())

    def shown():
        return float(at.locator(f"{ROOT} .numbers .effect dd").get_attribute("data-value"))

    assert shown() == pytest.approx(effect(2), abs=1e-5)
    assert abs(effect(2)) > 1e-3
    at.keyboard.press("ArrowRight")
    at.keyboard.press("Enter")
    at.wait_for_selector(f'{ROOT}[data-picks="2"][data-idle="true"]')
    assert shown() == pytest.approx(effect(3), abs=1e-5)
    at.keyboard.press("u")
    at.wait_for_selector(f'{ROOT}[data-picks="3"]')
    assert shown() == pytest.approx(effect(2), abs=1e-5)
    assert at.locator(".jp-Notebook .jp-CodeCell").count() == 2  # no shortcut of the notebook's own
    assert asked_elsewhere(seen) == []


def asked_elsewhere(seen):
    """Requests that left this machine."""
    foreign = [url for url in seen.requests if "//127.0.0.1:" not in url]
    return [url for url in foreign if not url.startswith(("data:", "blob:"))]


@pytest.mark.slow
def test_the_tutorial_is_run_and_clicked(lab, look, embedded):
    seen = look(lab("tutorial"))
    at = seen.page
    at.set_default_timeout(240_000)  # a whole model is loaded, perhaps while others work
    run_first_cell(at)
    at.wait_for_selector(f'{ROOT}[data-idle="true"]')
    prompts = Prompts.from_pairs(
        embedded, ["When Mary and John went to the store, John gave a drink to"],
        ["When Mary and John went to the store, Mary gave a drink to"], ["Mary"], ["John"],
    )  # fmt: skip
    name, last = prompts.differing(0)[0], len(prompts.clean[0]) - 1
    for clicks, (layer, pos) in enumerate([(10, name), (28, last)], start=1):
        at.locator(f'{ROOT} td[data-layer="{layer}"][data-at="{pos}"]').click()
        at.wait_for_selector(f'{ROOT}[data-picks="{clicks}"][data-idle="true"]')
        condition = Condition("asked", (Patch(Site("resid_pre", layer=layer, pos=pos)),))
        found = run(embedded, prompts, Sweep.over([condition]), LogitDiff())
        shown = float(at.locator(f"{ROOT} .numbers .effect dd").get_attribute("data-value"))
        assert shown == pytest.approx(float(found["effect"].squeeze()), abs=1e-3)
        assert abs(shown) > 1
    assert asked_elsewhere(seen) == []
