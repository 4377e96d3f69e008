"""The explorer in a browser: marimo serves one page, on loopback and behind a token."""

import importlib.util
import secrets
import socket
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tlkit.app.guard import MOST_BYTES, Guard
from tlkit.errors import SpecError

if TYPE_CHECKING:
    from tlkit.app.explore import Explorer
    from tlkit.app.state import State

HOST = "127.0.0.1"
PAGE = Path(__file__).with_name("page.py")
NEEDED = ("marimo", "uvicorn")
TABS = 8
"""How many pages may be open at once; the oldest is closed for another one."""

_shown: "list[tuple[Any, State]]" = []
_open: "deque[Explorer]" = deque()


def check_installed() -> None:
    """Refuse to serve without the packages of the extra.

    Raises:
        SpecError: One is missing.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise SpecError(
            f"tlkit explore needs {missing[0]}: pip install 'tlkit[explore]' (notebooks need no "
            f"more than tk.explore)."
        )


def listen(port: int | None) -> socket.socket:
    """A socket that listens on loopback.

    Args:
        port: Its port; a free one if None.

    Raises:
        SpecError: The port cannot be had.
    """
    taken = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind((HOST, port or 0))
        taken.listen()
    except OSError as error:
        taken.close()
        raise SpecError(
            f"Port {port} of this machine cannot be used ({error.strerror}): give another --port, "
            f"or none."
        ) from None
    return taken


class Served:
    """The explorer's server, made but not running.

    Args:
        model: A loaded model.
        state: What each page shows at first.
        taken: The socket that it listens on (see `listen`).
    """

    def __init__(self, model: Any, state: "State", taken: socket.socket) -> None:
        self._shown, self._socket = (model, state), taken
        self._token = secrets.token_urlsafe(24)
        self.port: int = taken.getsockname()[1]

    @property
    def url(self) -> str:
        """Where the page is, with the token that opens it."""
        return f"http://{HOST}:{self.port}/?access_token={self._token}"

    def run(self) -> None:
        """Serve until Ctrl+C, which is raised again as KeyboardInterrupt."""
        from marimo import create_asgi_app

        made: list[Any] = []

        def keep(app: Any) -> Any:
            made.append(app)
            return app

        _shown[:] = [self._shown]
        builder = create_asgi_app(quiet=True, token=self._token)
        pages: Any = builder.with_app(path="/", root=str(PAGE), middleware=[keep]).build()
        try:
            _server(Guard(pages, self.port), made[0]).run(sockets=[self._socket])
        finally:
            _shown.clear()
            while _open:
                _open.popleft().close()
            self._socket.close()


def _server(application: Guard, pages: Any) -> Any:
    """A server that ends marimo's sessions before itself, else their threads would outlive it."""
    import uvicorn

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            await pages.state.session_manager.shutdown()
            await super().shutdown(sockets)

    return Server(uvicorn.Config(
        application, log_level="error", server_header=False, timeout_graceful_shutdown=1,
        ws_max_size=MOST_BYTES,
    ))  # fmt: skip


def page_widget() -> "Explorer":
    """The widget of one page; each page has its own.

    Raises:
        SpecError: Nothing is served.
    """
    from tlkit.app.explore import Explorer
    from tlkit.app.kernel import Kernel

    if not _shown:
        raise SpecError("This page belongs to tlkit explore; run that.")
    explorer = Explorer(Kernel(*_shown[0]))
    _open.append(explorer)
    while len(_open) > TABS:
        _open.popleft().close()
    return explorer
