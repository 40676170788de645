"""Serve the playground with Python's own web server, to this machine alone unless asked otherwise.

There is nothing to read from disk: one page in memory, and one address a tab that computes. What a client can ask
for is bounded: the size of a request, the values in it, the number of connections, and the measurements at a time.
"""

from __future__ import annotations

import contextlib
import gzip
import ipaddress
import json
import socket
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from argrad import __version__
from argrad._errors import ArgradError, InputError
from argrad.play import page

LARGEST_REQUEST = 64 * 1024
MOST_CONNECTIONS = 64
MOST_AT_WORK = 4
_WAIT_FOR_TURN = 20.0  # seconds; a measurement takes a few
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Playground(ThreadingHTTPServer):
    """The page on `http://host:port/`; port 0 takes a free one.

    Args:
        host: an address of this machine; by default the one that nobody else can reach.
        port: number of the port.

    Examples:
        >>> with Playground(port=0) as server:
        ...     server.address.startswith("http://127.0.0.1:")
        True
    """

    daemon_threads = True
    block_on_close = False  # a browser keeps its connection open; do not wait for it
    request_queue_size = 128
    allow_reuse_address = True

    def __init__(self, host: str = "127.0.0.1", port: int = 8765) -> None:
        self.host = host
        self.page = page.build().encode()
        self.zipped = gzip.compress(self.page, mtime=0)
        self.slots = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self.connections: set[socket.socket] = set()
        self.computing = threading.BoundedSemaphore(MOST_AT_WORK)
        self.turn = threading.Lock()  # one measurement at a time, so that its times mean something
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), Handler)
        except (OSError, OverflowError) as error:
            raise InputError(
                f"cannot listen on {host}, port {port}: {error}. Another program may be there; "
                "`--port 0` takes any free port."
            ) from None

    @property
    def address(self) -> str:
        """Where to point the browser."""
        host, port = self.server_address[:2]
        text = f"[{host}]" if ":" in str(host) else str(host)
        return f"http://{text}:{port}/"

    @property
    def is_local(self) -> bool:
        """Nobody but this machine can reach it."""
        return ipaddress.ip_address(str(self.server_address[0])).is_loopback

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a connection, if there are not too many."""
        if not self.slots.acquire(blocking=False):
            request.sendall(
                b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\n\r\n"
            )
            self.shutdown_request(request)
            return
        self.connections.add(request)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Give the slot back when the connection ends."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.connections.discard(request)
            self.slots.release()

    def server_close(self) -> None:
        """Stop, when what is being computed is done: a thread inside torch cannot be left alone."""
        super().server_close()
        for _ in range(MOST_AT_WORK):
            self.computing.acquire(timeout=10)
        for connection in tuple(self.connections):  # which browsers keep open
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is not worth a traceback."""


class Handler(BaseHTTPRequestHandler):
    """Two kinds of requests: GET / for the page, POST /api/TAB with a state for its numbers."""

    server: Playground  # type: ignore[assignment]
    protocol_version = "HTTP/1.1"
    server_version = f"argrad/{__version__}"
    sys_version = ""
    timeout = 30  # seconds of silence after which a connection is closed

    def do_GET(self) -> None:
        """The page."""
        if not self._is_for_us():
            return
        if self.path.partition("?")[0] != "/":
            self._refuse(HTTPStatus.NOT_FOUND, "There is one page here, at /.")
            return
        zipped = "gzip" in self.headers.get("Accept-Encoding", "")
        body = self.server.zipped if zipped else self.server.page
        self._send(HTTPStatus.OK, body, "text/html; charset=utf-8", zipped=zipped)

    do_HEAD = do_GET  # noqa: N815 (the name that http.server looks for)

    def do_POST(self) -> None:
        """The numbers of a tab."""
        from argrad.play.answers import TABS

        body = (
            self._body()
        )  # whatever becomes of it: a client that is still sending would not see the answer
        if body is None or not self._is_for_us():
            return
        tab = self.path.removeprefix("/api/")
        if tab not in TABS or not self.path.startswith("/api/"):
            self._refuse(HTTPStatus.NOT_FOUND, f"Ask /api/ for one of {', '.join(TABS)}.")
            return
        state = self._state(body)
        if state is not None:
            self._answer(tab, state)

    def _answer(self, tab: str, state: dict[str, Any]) -> None:
        from argrad.play.answers import TABS

        takes_turns = tab == "estimators"
        if takes_turns and not self.server.turn.acquire(timeout=_WAIT_FOR_TURN):
            sentence = "Another measurement is running; try again in a few seconds."
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, sentence)
            return
        try:
            with self.server.computing:
                body = json.dumps(TABS[tab](state), allow_nan=False).encode()
        except ArgradError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))
            return
        except Exception as error:
            sentence = f"The library failed here ({type(error).__name__}): please report this state."
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, sentence)
            return
        finally:
            if takes_turns:
                self.server.turn.release()
        self._send(HTTPStatus.OK, body, "application/json")

    def _is_for_us(self) -> bool:
        """A page of somebody else must not reach this machine under a name of its own (DNS rebinding)."""
        known = {"localhost", self.server.host, str(self.server.server_address[0])}
        if not self.server.is_local or _host_name(self.headers.get("Host", "")) in known:
            return True
        self._refuse(HTTPStatus.FORBIDDEN, f"This server answers to {', '.join(sorted(known))}.")
        return False

    def _body(self) -> bytes | None:
        """What was sent, or None after a refusal."""
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            self._refuse(HTTPStatus.LENGTH_REQUIRED, "Say how long the request is: Content-Length.")
            return None
        if len(length) > 9 or int(length) > LARGEST_REQUEST:
            self._drain(min(int(length[:9]), 64 * LARGEST_REQUEST))
            sentence = f"A request may have {LARGEST_REQUEST} bytes; this one has {length[:20]}."
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, sentence)
            return None
        return self.rfile.read(int(length))

    def _drain(self, size: int) -> None:
        """Read on for a while."""
        self.connection.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            while size > 0 and (part := self.rfile.read1(LARGEST_REQUEST)):
                size -= len(part)

    def _state(self, body: bytes) -> dict[str, Any] | None:
        """The JSON object that was sent, or None after a refusal."""
        if self.headers.get_content_type() != "application/json":
            self._refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Send JSON, as application/json.")
            return None
        try:
            state = json.loads(body)
        except (ValueError, RecursionError):  # not JSON, not UTF-8, or brackets within brackets
            self._refuse(HTTPStatus.BAD_REQUEST, "That is not JSON.")
            return None
        if not isinstance(state, dict):
            self._refuse(HTTPStatus.BAD_REQUEST, "Send a JSON object: the state of the tab.")
            return None
        return state

    def _refuse(self, status: HTTPStatus, sentence: str) -> None:
        self.close_connection = True  # whatever else was sent is not read
        self._send(status, json.dumps({"error": sentence}).encode(), "application/json")

    def _send(self, status: HTTPStatus, body: bytes, kind: str, *, zipped: bool = False) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", _POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        if zipped:
            self.send_header("Content-Encoding", "gzip")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Errors of the protocol (an unknown method, a line that is too long), as sentences too."""
        status = HTTPStatus(code)
        if not hasattr(self, "headers"):  # refused before they were read
            self.request_version = "HTTP/1.1"
        self._refuse(status, f"{message or status.phrase}. GET / or POST /api/TAB.")

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: whoever runs it wants to see the page, not its requests."""


def _host_name(header: str) -> str | None:
    """`Host` without its port."""
    try:
        return urlsplit(f"//{header}").hostname
    except ValueError:
        return None
