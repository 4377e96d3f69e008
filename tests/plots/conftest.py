"""A headless browser that writes down what a page asks for, draws and throws."""

import shutil
from dataclasses import dataclass, field

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")

RECORD_TEXT = """
window.drawn = [];
const fill = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
  window.drawn.push(String(text)); return fill.call(this, text, ...rest);
};
"""


@dataclass
class Seen:
    page: object
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    def ask(self, script):
        return self.page.evaluate(script)

    def wait(self, condition):
        self.page.wait_for_function(condition, timeout=60_000)


@pytest.fixture(scope="session")
def _chromium(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        context = driver.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("profile"),
            executable_path=CHROMIUM,
            headless=True,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        context.set_default_timeout(120_000)
        context.add_init_script(RECORD_TEXT)
        yield context
        context.close()


@pytest.fixture
def look(_chromium):
    """Opens a file and returns what it did."""
    pages = []

    def open_file(path):
        page = _chromium.new_page()
        pages.append(page)
        seen = Seen(page)
        page.on("request", lambda request: seen.requests.append(request.url))
        page.on("pageerror", lambda error: seen.errors.append(str(error)))
        page.on("console", lambda m: seen.errors.append(m.text) if m.type == "error" else None)
        page.on("dialog", lambda dialog: (seen.dialogs.append(dialog.message), dialog.dismiss()))
        page.goto(path.as_uri())
        return seen

    yield open_file
    for page in pages:
        page.close()
