"""The operations endpoints: ``/livez``, ``/readyz``, ``/metrics`` and ``/tasks``, served by a daemon thread.

``/livez`` is 200 while the supervisor's loop turns. It does not ask Kafka: a restart would not mend a broker.
``/readyz`` is 200 while at least one process may start tasks, and 503 with the reason while starting and draining.
"""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import sys
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from worker.errors import SettingsError
from worker.supervisor.board import Board, describe, why_not_ready
from worker.supervisor.prometheus import ReplicaCollector

if TYPE_CHECKING:
    from collections.abc import Iterator

log = structlog.get_logger("supervisor")


class Response(NamedTuple):
    """An answer to a request."""

    status: HTTPStatus
    body: bytes
    content_type: str = "application/json"


class Endpoints:
    """What is answered to which path. Any thread."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(ReplicaCollector(board.readings))
        self._routes = {
            "/livez": self._livez,
            "/readyz": self._readyz,
            "/metrics": self._metrics,
            "/tasks": self._tasks,
        }

    def respond(self, target: str) -> Response:
        """The answer to a GET; ``target`` as it stands in the request line."""
        route = self._routes.get(target.partition("?")[0])
        if route is None:
            return _json(HTTPStatus.NOT_FOUND, {"error": "not found", "paths": list(self._routes)})
        return route()

    def _livez(self) -> Response:
        if self._board.live(time.monotonic()):
            return _json(HTTPStatus.OK, {"status": "live"})
        return _json(HTTPStatus.SERVICE_UNAVAILABLE, {"status": "not live", "reason": "the supervisor hangs"})

    def _readyz(self) -> Response:
        reason = why_not_ready(self._board.phase, self._board.readings())
        if reason is None:
            return _json(HTTPStatus.OK, {"status": "ready"})
        return _json(HTTPStatus.SERVICE_UNAVAILABLE, {"status": "not ready", "reason": reason})

    def _metrics(self) -> Response:
        return Response(HTTPStatus.OK, generate_latest(self._registry), CONTENT_TYPE_LATEST)

    def _tasks(self) -> Response:
        now = time.time()
        return _json(HTTPStatus.OK, {"processes": [describe(reading, now) for reading in self._board.readings()]})


def _json(status: HTTPStatus, value: object) -> Response:
    return Response(status, json.dumps(value).encode() + b"\n")


class _Server(ThreadingHTTPServer):
    """On all interfaces, IPv6 too where there is one."""

    daemon_threads = True
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # Not HTTPServer's: it looks up the host's name, which takes long where there is no DNS.
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class's signature
        """Note a defect of ours; a client that has gone away is none."""
        if not isinstance(sys.exception(), OSError):
            log.error("http.failed", exc_info=True)  # noqa: LOG014 - called while the exception is handled


def _handler(endpoints: Endpoints) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10.0  # seconds; a connection that says nothing does not keep its thread for longer

        def do_GET(self) -> None:
            response = endpoints.respond(self.path)
            self.send_response(response.status)
            self.send_header("Content-Type", response.content_type)
            self.send_header("Content-Length", str(len(response.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(response.body)

        do_HEAD = do_GET  # noqa: N815 - so named by the base class

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - so named by the base class
            """Probes and scrapes are no news."""

    return Handler


@contextlib.contextmanager
def serving(board: Board, port: int) -> Iterator[int]:
    """While entered, the endpoints are served; gives the port. 0 serves nothing.

    Raises SettingsError if the port cannot be had.
    """
    if port == 0:
        yield 0
        return
    with _server(Endpoints(board), port) as server:
        threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
        log.info("http.listening", port=port)
        try:
            yield port
        finally:
            server.shutdown()


def _server(endpoints: Endpoints, port: int) -> _Server:
    try:
        return _Server(("", port), _handler(endpoints))
    except OSError as error:
        raise SettingsError(
            f"WORKER_HTTP_PORT={port} cannot be used ({error.strerror}); choose another, or 0 for none"
        ) from error
