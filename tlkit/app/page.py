# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""The page that ``tlkit explore`` serves: a marimo notebook of one cell."""

import marimo

app = marimo.App(width="full", app_title="tlkit explore")


@app.cell
def _():
    from tlkit.app.server import page_widget

    page_widget()
    return
