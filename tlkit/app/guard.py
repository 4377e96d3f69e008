"""What stands before the server: only this machine's own pages get through."""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

HOSTS = ("127.0.0.1", "localhost")
MOST_BYTES = 4 * 2**20
"""Of a request, or of a message on a socket; the page's own are a few thousand."""
POLICY_VIOLATION = 1008  # of a WebSocket, RFC 6455, 7.4.1
_STRANGER = b"This explorer answers its own page only."
_TOO_LARGE = b"This request is too large."


class Guard:
    """An ASGI application that lets only requests of the server's own pages through.

    A request must name the server by a loopback name (else a foreign page could reach it by a
    name of its own that resolves to this machine), and if a browser says where it comes from, that
    must be the server itself. It must not be large. Pages may load nothing from elsewhere.

    Args:
        application: What is guarded.
        port: The server's port.
    """

    def __init__(self, application: Application, port: int) -> None:
        self.application = application
        self.hosts = {f"{host}:{port}".encode() for host in HOSTS}
        self.origins = {b"http://" + host for host in self.hosts}
        reached = " ".join(f"ws://{host}:{port}" for host in HOSTS)
        self.policy = (
            "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; "
            f"connect-src 'self' data: blob: {reached}; frame-ancestors 'none'"
        ).encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] not in ("http", "websocket"):
            await self.application(scope, receive, send)
        elif not self.allowed(scope["headers"]):
            await _refuse(scope["type"], receive, send, 403, _STRANGER)
        elif not _small(scope["headers"]):
            await _refuse(scope["type"], receive, send, 413, _TOO_LARGE)
        else:
            await self.application(scope, _limited(receive), self._with_policy(send))

    def allowed(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Whether a request comes from the server's own page, or from no page at all."""
        given = [(name.lower(), value) for name, value in headers]
        hosts = [value for name, value in given if name == b"host"]
        origins = [value for name, value in given if name == b"origin"]
        return len(hosts) == 1 and hosts[0] in self.hosts and set(origins) <= self.origins

    def _with_policy(self, send: Send) -> Send:
        async def sending(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ()), (b"content-security-policy", self.policy)]
                message = {**message, "headers": headers}
            await send(message)

        return sending


def _small(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a request says that it has no more bytes than may be."""
    lengths = [value for name, value in headers if name.lower() == b"content-length"]
    return all(value.isdigit() and int(value[:20]) <= MOST_BYTES for value in lengths)


def _limited(receive: Receive) -> Receive:
    """What is received, ended where a request that did not say its length becomes too large."""
    taken = 0

    async def receiving() -> MutableMapping[str, Any]:
        nonlocal taken
        message = await receive()
        if message["type"] == "http.request":
            taken += len(message.get("body", b""))
            if taken > MOST_BYTES:
                return {"type": "http.disconnect"}
        return message

    return receiving


async def _refuse(kind: str, receive: Receive, send: Send, status: int, body: bytes) -> None:
    if kind == "websocket":
        await receive()  # the connection's request, which must be taken before it is refused
        await send({"type": "websocket.close", "code": POLICY_VIOLATION})
        return
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
