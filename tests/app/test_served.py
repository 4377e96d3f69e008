"""`tlkit explore` as a reader meets it: a page in Chromium, clicked and typed into.

Faults to plant: set tokens as HTML; number the cells from the top; forget to send shift; listen on
every address; let the page in without its token.
"""

import json
import re
import urllib.error
import urllib.request

import psutil
import pytest

from tlkit.engine.run import run
from tlkit.models.load import HookedTransformer
from tlkit.prompts.pairs import pairs_from_jsonl
from tlkit.spec.attention import Knockout
from tlkit.spec.interventions import Ablate, Patch
from tlkit.spec.metrics import LogitDiff
from tlkit.spec.sites import Site
from tlkit.spec.sweeps import Condition, Sweep

ROOT = ".tlkit-explorer"
IDLE = f'{ROOT}[data-idle="true"]'


@pytest.fixture
def page(look, served):
    """The page, its map complete."""
    seen = look(served[1])
    seen.page.wait_for_selector(IDLE)
    yield seen
    foreign = [url for url in seen.requests if not re.match(r"(http|ws)://127\.0\.0\.1:", url)]
    assert [url for url in foreign if not url.startswith(("data:", "blob:"))] == []
    assert [text for text in seen.errors if "favicon" not in text] == []
    assert seen.dialogs == []


@pytest.fixture(scope="module")
def effect(pairs_file):
    """A function from changes to the effect that `tk.run` finds on the first pair."""
    model = HookedTransformer.from_pretrained("tiny:llama3", device="cpu")
    prompts = pairs_from_jsonl(model, pairs_file)[0]

    def found(*changes):
        sweep = Sweep.over([Condition("asked", changes)])
        return float(run(model, prompts, sweep, LogitDiff())["effect"].squeeze())

    return found


FOCUSED = """(() => {
    let e = document.activeElement;
    while (e.shadowRoot?.activeElement) e = e.shadowRoot.activeElement;
    const style = getComputedStyle(e).outlineStyle;
    return [e.dataset.layer, e.dataset.at, style, e.getAttribute("aria-label")];
})()"""


def stream(layer, pos):
    return Patch(Site("resid_pre", layer=layer, pos=pos))


def cell(layer, at):
    return f'{ROOT} td[data-layer="{layer}"][data-at="{at}"]'


def number(page, name):
    return float(page.locator(f"{ROOT} .numbers .{name} dd").get_attribute("data-value"))


def picks(page):
    return int(page.locator(ROOT).get_attribute("data-picks") or 0)


def settled(page, act):
    """Do something that changes what is picked, and wait for the numbers and what follows."""
    before = picks(page)
    act()
    page.wait_for_selector(f'{ROOT}[data-picks="{before + 1}"]{IDLE.removeprefix(ROOT)}')


def test_a_click_and_a_set_show_what_run_gives(page, effect):
    at = page.page
    whole = {(k, p): effect(stream(k, p)) for k, p in ((0, 10), (2, 14))}
    for place, value in whole.items():
        shown = float(at.locator(cell(*place)).get_attribute("data-value"))
        assert shown == pytest.approx(value, abs=1e-5)
        assert abs(value) > 1e-3
    settled(at, at.locator(cell(0, 10)).click)
    assert number(at, "effect") == pytest.approx(whole[0, 10], abs=1e-5)
    assert at.locator(f"{ROOT} .top").count() == 2
    assert at.locator(f"{ROOT} .top.after tr").count() == 10
    assert at.locator(f"{ROOT} .attention canvas").count() == 2
    assert at.locator(f"{ROOT} .continuation.after span").inner_text() != ""
    settled(at, lambda: at.locator(cell(2, 14)).click(modifiers=["Shift"]))
    both = effect(stream(0, 10), stream(2, 14))
    assert number(at, "effect") == pytest.approx(both, abs=1e-5)
    assert number(at, "sum") == pytest.approx(sum(whole.values()), abs=1e-5)
    assert at.locator(f"{ROOT} td.chosen").count() == 2


def test_edges_are_cut_heads_ablated_and_steps_undone(page, effect):
    at = page.page
    for name, value in (("query", "14"), ("key", "10"), ("cut-layer", "1"), ("cut-head", "2")):
        at.select_option(f"{ROOT} select.{name}", value)
    settled(at, at.locator(f"{ROOT} .cut button").click)
    cut = Knockout(queries=(14,), keys=(10,), layers=(1,), heads=(2,))
    assert number(at, "effect") == pytest.approx(effect(cut), abs=1e-5)
    at.select_option(f"{ROOT} select.off-layer", "2")
    at.select_option(f"{ROOT} select.off-head", "3")
    settled(at, at.locator(f"{ROOT} .ablate button").click)
    both = effect(cut, Ablate(Site("z", layer=2, head=3)))
    assert number(at, "effect") == pytest.approx(both, abs=1e-5)
    settled(at, at.locator(f"{ROOT} button.undo").click)
    assert number(at, "effect") == pytest.approx(effect(cut), abs=1e-5)
    at.locator(f"{ROOT} button.reset").click()
    at.wait_for_selector(f"{ROOT} .hint")
    assert at.locator(f"{ROOT} .numbers").count() == 0


def test_keys_do_what_the_mouse_does(page, effect):
    at = page.page
    at.locator(cell(0, 10)).focus()
    for key in ("ArrowUp", "ArrowRight", "ArrowRight", "ArrowLeft"):
        at.keyboard.press(key)
    settled(at, lambda: at.keyboard.press("Enter"))
    assert number(at, "effect") == pytest.approx(effect(stream(1, 11)), abs=1e-5)
    layer, column, outline, words = page.ask(FOCUSED)
    assert (layer, column, outline) == ("1", "11", "solid")
    assert words.startswith("layer 1, position 11 ")
    at.keyboard.press("Home")
    at.keyboard.press("End")
    settled(at, lambda: at.keyboard.press("Shift+Enter"))
    last = int(page.ask(FOCUSED)[1])
    both = effect(stream(1, 11), stream(1, last))
    assert number(at, "effect") == pytest.approx(both, abs=1e-5)
    settled(at, lambda: at.keyboard.press("u"))
    assert number(at, "effect") == pytest.approx(effect(stream(1, 11)), abs=1e-5)
    at.keyboard.press("r")
    at.wait_for_selector(f"{ROOT} .hint")


def test_odd_tokens_are_text(page):
    at = page.page
    at.select_option(f"{ROOT} .choose-example select", "1")
    at.locator(f"{ROOT} thead th", has_text="dog").first.wait_for()
    at.wait_for_selector(IDLE)
    heads = at.locator(f"{ROOT} thead th").all_inner_texts()
    assert "</" in "".join(heads)
    assert "↵" in heads
    assert at.locator(f"{ROOT} b", has_text="sat").count() == 0
    assert "</script><b>" in at.locator(f"{ROOT} .choose-example select").inner_text()
    differ = at.locator(f"{ROOT} thead th.differs").all_inner_texts()
    assert [word.strip() for word in differ] == ["cat", "dog"]


def test_prompts_are_edited_and_errors_are_one_line(page):
    at = page.page
    at.locator(f"{ROOT} .prompts summary").click()
    at.fill(f"{ROOT} .text-clean", "The cat sat")
    at.fill(f"{ROOT} .text-corrupted", "The cat sat")
    at.locator(f"{ROOT} .apply").click()
    at.wait_for_selector(f"{ROOT} .error:not([hidden])")
    assert at.locator(f"{ROOT} thead tr").first.locator("th").count() > 10  # the old map stays
    at.fill(f"{ROOT} .text-corrupted", "The dog sat")
    at.locator(f"{ROOT} .apply").click()
    at.wait_for_selector(f'{ROOT}[data-exact="12/12"]')
    assert at.locator(f"{ROOT} .error").is_hidden()
    assert at.locator(f"{ROOT} thead th.differs").count() == 2


def test_code_and_picture_can_be_taken(page):
    at = page.page
    settled(at, at.locator(cell(1, 10)).click)
    shown = number(at, "after")
    at.locator(f"{ROOT} .to-code").click()
    code = at.locator(f"{ROOT} .code pre").inner_text()
    space = {}
    exec(code, space)
    assert space["value"] == pytest.approx(shown, abs=1e-5)
    with at.expect_download() as waiting:
        at.locator(f"{ROOT} .to-png").click()
    data = waiting.value.path().read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(data) > 2000
    assert waiting.value.suggested_filename == "explorer-resid_pre-corrupted.png"


def test_maps_by_head_and_other_choices(page):
    at = page.page
    at.select_option(f"{ROOT} .choose-site select", "z")
    at.wait_for_selector(f'{ROOT}[data-exact="12/12"]')
    at.select_option(f"{ROOT} .choose-direction select", "noise")
    at.select_option(f"{ROOT} .choose-metric select", "kl")
    at.locator(f"{ROOT} .caption", has_text="clean run").wait_for()
    at.locator(f"{ROOT} .caption", has_text="nats").wait_for()
    at.wait_for_selector(f'{ROOT}[data-exact="12/12"]{IDLE.removeprefix(ROOT)}')
    assert at.locator(f"{ROOT} td.estimate").count() == 0


def test_the_server_is_this_machines_own(served):
    process, url = served
    running = psutil.Process(process.pid)
    family = [running, *running.children(recursive=True)]
    sockets = [c for one in family for c in one.net_connections(kind="inet")]
    listening = [c.laddr for c in sockets if c.status == psutil.CONN_LISTEN]
    port = int(url.split(":")[2].split("/")[0])
    assert [(one.ip, one.port) for one in listening] == [("127.0.0.1", port)]
    assert [c for c in sockets if c.raddr and c.raddr.ip != "127.0.0.1"] == []


def asked(url, **headers):
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


def test_the_page_needs_its_token_and_its_origin(served):
    _, url = served
    bare = url.split("?")[0]
    _, text = asked(bare)
    assert "password" in text.lower() or text == ""
    assert "marimo-mount-config" not in text
    assert asked(f"{bare}api/status")[0] in (401, 403, 404)
    assert asked(url, Origin="http://example.org")[0] == 403
    assert asked(url, Host="example.org")[0] == 403
    assert asked(url)[0] == 200


def test_the_socket_needs_the_token_too(served):
    from websockets.exceptions import WebSocketException
    from websockets.sync.client import connect

    at = served[1].split("?")[0].replace("http://", "ws://") + "ws?session_id=s_abcdef"
    for options in ({}, {"origin": "http://example.org"}):
        with pytest.raises(WebSocketException), connect(at, open_timeout=30, **options) as socket:
            socket.recv(timeout=30)


def test_the_url_is_the_one_line_of_the_result(served):
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?access_token=[\w-]{20,}", served[1])
    assert json.dumps(served[1])
