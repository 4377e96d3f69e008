"""Saving a figure as a page or as a picture, without a network."""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess  # nosec B404: of a browser that is found here, without a shell
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tlkit.errors import EngineError, SpecError
from tlkit.plots.page import as_script, escaped, page, plot_call, plotly_script
from tlkit.plots.writing import write_bytes, write_page

if TYPE_CHECKING:
    import plotly.graph_objects as go

BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "msedge",
    "microsoft-edge",
)
MAC_BROWSERS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
)
SECONDS = 120


def save(
    figure: go.Figure,
    path: str | Path,
    *,
    width: int | None = None,
    height: int | None = None,
    scale: int | float = 2,
) -> Path:
    """Saves a plotly figure as `.html`, `.png` or `.svg`.

    Pictures are drawn by a Chromium or Chrome found on the machine (or named by the
    environment variable TLKIT_BROWSER); it is given a file and no network.

    Args:
        figure: the figure.
        path: where to; its ending says the format. A file of that name is replaced.
        width: width in pixels; the figure's own when not said.
        height: height in pixels; the figure's own when not said.
        scale: pixels of a PNG for each of those.

    Raises:
        SpecError: another ending, or no browser for a picture.
        EngineError: the browser gave no picture.
    """
    path = Path(path)
    kind = path.suffix.lower().removeprefix(".")
    if kind == "html":
        return write_page(path, figure_page(figure))
    if kind not in ("png", "svg"):
        raise SpecError(f"A figure is saved as .html, .png or .svg, not as '{path.suffix}'.")
    browser = find_browser()
    if browser is None:
        raise SpecError(
            f"A .{kind} needs Chromium or Chrome, which was not found: install one, name it in "
            f"TLKIT_BROWSER, or save as .html."
        )
    layout: Any = figure.layout
    size = {
        "width": int(width or layout.width or 900),
        "height": int(height or layout.height or 500),
    }
    picture = _draw(figure, {"format": kind, "scale": scale, **size}, browser)
    return write_bytes(path, picture)


def figure_page(figure: go.Figure) -> str:
    """One page with the figure and the plotly library inside."""
    layout: Any = figure.layout
    title = re.sub("<[^>]*>", "", layout.title.text or "Figure")
    body = '<div class="card"><div id="figure"></div></div>'
    return page(title, body, [plotly_script(), plot_call(str(figure.to_json()), "figure")])


def find_browser() -> str | None:
    """The Chromium or Chrome to draw with: TLKIT_BROWSER, the search path, or macOS's place."""
    named = os.environ.get("TLKIT_BROWSER")
    if named:
        return shutil.which(named)
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None and sys.platform == "darwin":
        found = next((path for path in MAC_BROWSERS if Path(path).is_file()), None)
    return found


def _draw(figure: go.Figure, options: dict, browser: str) -> bytes:
    """Lets the page draw the picture and write it, as base64, into its own text."""
    script = (
        f"const f={escaped(str(figure.to_json()))};"
        f"Plotly.toImage(f,{as_script(options)}).then("
        "u=>{document.getElementById('out').textContent='[picture:'+u+']'},"
        "e=>{document.getElementById('out').textContent='[failed:'+e+']'});"
    )
    with tempfile.TemporaryDirectory(prefix="tlkit-") as folder:
        file = Path(folder) / "figure.html"
        file.write_text(page("figure", '<pre id="out"></pre>', [plotly_script(), script]), "utf-8")
        found = re.search(r"\[picture:data:([^,\]]*),([^\]]*)\]", _dumped(file, browser))
    if found is None:
        raise EngineError(f"{browser} gave no picture: save as .html instead.")
    if "base64" in found[1]:
        return base64.b64decode(found[2])
    from urllib.parse import unquote

    return unquote(found[2]).encode("utf-8")


def _dumped(file: Path, browser: str) -> str:
    command = [
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--no-first-run",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        f"--user-data-dir={file.parent / 'profile'}",
        "--virtual-time-budget=20000",
        "--dump-dom",
        file.as_uri(),
    ]
    try:
        # A list and no shell: nothing of the figure is read as a command.
        done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)  # nosec B603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(f"{browser} gave no picture: save as .html instead.") from error
    return done.stdout.decode("utf-8", errors="replace")
