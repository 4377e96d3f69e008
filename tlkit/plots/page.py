"""One self-contained HTML page: libraries inside, nothing fetched, nothing injected."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tlkit.errors import SpecError

STYLE = """
:root { color-scheme: light dark; }
body { margin: 0 auto; max-width: 1200px; padding: 24px; line-height: 1.5;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", Arial, sans-serif;
  color: #1f2430; background: #f6f7f9; }
h1 { font-size: 28px; margin: 8px 0; } h2 { font-size: 21px; margin: 40px 0 8px; }
a { color: #0b62a8; } nav ul { padding-left: 20px; margin: 4px 0; }
.card { background: white; color: #1f2430; border: 1px solid #dfe3e8; border-radius: 8px;
  padding: 12px; margin: 12px 0; overflow-x: auto; }
.note { color: #57606a; font-size: 14px; margin: 4px 0; }
table { border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 4px 14px 4px 0; border-bottom: 1px solid #e6e9ed;
  vertical-align: top; overflow-wrap: anywhere; }
th { overflow-wrap: normal; }
td.number, th.number { text-align: right; padding: 4px 14px; }
th[data-sort] { cursor: pointer; } th[data-sort]::after { content: " \\2195"; color: #9aa1ab; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: 13px; margin: 0; }
summary { cursor: pointer; font-weight: 600; }
.attention { min-width: 640px; max-width: 940px; }
.attention h2, .attention h3 { font-size: 15px; line-height: 1.2; }
.attention h4 { font-size: 10px; line-height: 1.15; }
@media (prefers-color-scheme: dark) {
  body { color: #e6e9ed; background: #14171c; } a { color: #79b8ff; }
  .note { color: #a3abb5; } .card .note { color: #57606a; } .card { border-color: #2b3038; }
}
@media print { body { background: white; } .card { break-inside: avoid; } }
"""


def page(title: str, body: str, scripts: Sequence[str]) -> str:
    """An HTML page that may run these scripts and no other, and load nothing.

    The page's content security policy names each script by its hash, so that markup which
    got into the body could not run even if something had been left unescaped.

    Args:
        title: the page's title, as plain text.
        body: HTML, escaped by whoever made it.
        scripts: JavaScript, run in this order after the body.
    """
    texts = [text.replace("\r\n", "\n").replace("\r", "\n") for text in scripts]
    hashes = " ".join(f"'sha256-{_sha256(text)}'" for text in texts)
    policy = (
        f"default-src 'none'; script-src {hashes or chr(39) + 'none' + chr(39)}; "
        "style-src 'unsafe-inline'; img-src data: blob:; font-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    blocks = "\n".join(f"<script>{text}</script>" for text in texts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n{blocks}\n</body>\n</html>\n"
    )


def as_script(value: Any) -> str:
    """A value as JavaScript that cannot end the script element around it."""
    return escaped(json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False))


def escaped(script: str) -> str:
    r"""JSON with `<` and the line separators written as \uXXXX."""
    return script.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def plotly_script() -> str:
    """The plotly.js library that the installed plotly brings."""
    from plotly.offline import get_plotlyjs

    return _library(get_plotlyjs())


def circuitsvis_script() -> str:
    """The CircuitsVis library, read from the installed package without importing it."""
    spec = find_spec("circuitsvis")
    folders = list(spec.submodule_search_locations or []) if spec else []
    for folder in folders:
        bundle = Path(folder) / "dist" / "cdn" / "iife.js"
        if bundle.is_file():
            text = bundle.read_text(encoding="utf-8")
            return _library(text.replace("//# sourceMappingURL=iife.js.map", ""))
    raise SpecError(
        "Attention pictures need the package circuitsvis with its file dist/cdn/iife.js: "
        "pip install circuitsvis."
    )


def plot_call(figure_json: str, place: str) -> str:
    """The script that draws a plotly figure, given as JSON, into an element."""
    config = as_script({"responsive": True, "displaylogo": False})
    return (
        f"(()=>{{const f={escaped(figure_json)};"
        f"f.layout.autosize=true;delete f.layout.width;"
        f"Plotly.newPlot({as_script(place)},f.data,f.layout,{config});}})();"
    )


def _library(text: str) -> str:
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()
