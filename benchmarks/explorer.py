"""From a click to changed numbers: `tlkit explore` on the embedded model, in Chromium.

    python benchmarks/explorer.py

30 clicks on one indirect-object pair, on cells that change something, spread over layers and
positions; each after the one before has come to rest. The page takes the time itself, from its
click handler to the numbers' being in the document. A second round clicks while the map is being
made.
"""

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright
from timing import machine, say

CLICKS = 30
ROOT = ".tlkit-explorer"
PAIR = {
    "clean": "When Mary and John went to the store, John gave a drink to",
    "corrupted": "When Mary and John went to the store, Mary gave a drink to",
    "answer": "Mary",
    "wrong_answer": "John",
}


def main() -> None:
    """Serve, click, and print the times in milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        pairs = Path(folder) / "pairs.jsonl"
        pairs.write_text(json.dumps(PAIR), encoding="utf-8")
        process = subprocess.Popen(
            [sys.executable, "-m", "tlkit.cli", "explore", "--pairs", str(pairs), "--no-browser",
             "--json"],
            stdout=subprocess.PIPE, text=True, env=os.environ,
        )  # fmt: skip
        try:
            url = json.loads(process.stdout.readline())["url"]
            say({"machine": machine(), "clicks": CLICKS, **measured(url)})
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=60)


def measured(url):
    """Both rounds."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page()
        page.set_default_timeout(120_000)
        page.goto(url)
        page.wait_for_selector(f'{ROOT}[data-idle="true"]')
        at_rest = round_of(page, '[data-idle="true"]')
        page.select_option(f"{ROOT} .choose-site select", "attn_out")
        page.wait_for_selector(f"{ROOT} td[data-value]")
        while_mapping = round_of(page, "")
        browser.close()
    return {"at_rest": at_rest, "while_mapping": while_mapping}


def round_of(page, rest):
    """The times of clicks; `rest` is what must hold before the next one."""
    cells = page.evaluate(f"""() => {{
        const find = (node) => node.querySelector('{ROOT}') ?? [...node.querySelectorAll('*')]
            .map((one) => one.shadowRoot && find(one.shadowRoot)).find(Boolean);
        const root = find(document);
        const cells = [...root.querySelectorAll('td.cell')]
            .map((td) => [+td.dataset.layer, +td.dataset.at]);
        const first = [...root.querySelectorAll('thead tr:last-child th.token')]
            .findIndex((th) => th.classList.contains('differs'));
        return cells.filter(([, at]) => at >= first);
    }}""")
    step = max(1, len(cells) // CLICKS)
    times = []
    for layer, at in cells[::step][:CLICKS]:
        before = int(page.locator(ROOT).get_attribute("data-picks") or 0)
        page.locator(f'{ROOT} td[data-layer="{layer}"][data-at="{at}"]').click()
        page.wait_for_selector(f'{ROOT}[data-picks="{before + 1}"]{rest}')
        times.append(float(page.locator(ROOT).get_attribute("data-latency")))
    return {
        "median_ms": statistics.median(times), "largest_ms": max(times),
        "all_ms": [round(one, 1) for one in times],
    }  # fmt: skip


if __name__ == "__main__":
    main()
