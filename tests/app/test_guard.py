"""Who gets through to the server.

Faults to plant: look at the host alone; take any loopback name with any port; let a socket pass.
"""

import pytest

from tlkit.app.guard import Guard

PORT = 4567
OWN = f"127.0.0.1:{PORT}"


def asked(kind, headers):
    """What a request gets: the messages that are sent."""
    sent, reached = [], []

    async def application(scope, receive, send):
        reached.append(scope["type"])
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def receive():
        return {"type": f"{kind}.connect"}

    async def send(message):
        sent.append(message)

    rows = [(name.encode(), value.encode()) for name, value in headers]
    with pytest.raises(StopIteration):  # nothing is waited for, so one step is all
        Guard(application, PORT)({"type": kind, "headers": rows}, receive, send).send(None)
    return bool(reached), sent


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize(
    ("headers", "through"),
    [
        ([("host", OWN)], True),
        ([("host", f"localhost:{PORT}")], True),
        ([("host", OWN), ("origin", f"http://{OWN}")], True),
        ([("host", OWN), ("origin", "http://127.0.0.1:9999")], False),
        ([("host", OWN), ("origin", f"https://{OWN}")], False),
        ([("host", OWN), ("Origin", "http://example.org")], False),
        ([("host", OWN), ("origin", "null")], False),
        ([("host", f"example.org:{PORT}")], False),
        ([("host", "127.0.0.1")], False),
        ([("host", OWN), ("host", "example.org")], False),
        ([], False),
    ],
)
def test_only_the_servers_own_page_gets_through(kind, headers, through):
    reached, sent = asked(kind, headers)
    assert reached == through
    if not through and kind == "http":
        assert sent[0]["status"] == 403
    if not through and kind == "websocket":
        assert sent == [{"type": "websocket.close", "code": 1008}]


def test_pages_are_told_to_load_nothing_from_elsewhere():
    _, sent = asked("http", [("host", OWN)])
    policy = dict(sent[0]["headers"])[b"content-security-policy"].decode()
    assert policy.startswith("default-src 'self'")
    assert f"ws://127.0.0.1:{PORT}" in policy
    assert "http:" not in policy
    assert "*" not in policy
