"""The HTTP endpoints ``/livez``, ``/readyz``, ``/metrics`` and ``/tasks``, served by a daemon thread.

``/livez`` is 200 while the supervisor's loop runs. It does not depend on Kafka, because a restart would not repair a
broker. ``/readyz`` is 200 while at least one process may start tasks, otherwise 503 with the reason (starting,
draining).
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
from worker.supervisor.prometheus import ReplicaCollector
from worker.supervisor.replica_status import ReplicaStatus, describe, why_not_ready

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_THREADS = 100  # of the supervisor; it closes further connections at once

log = structlog.get_logger("supervisor")


class Response(NamedTuple):
    """An HTTP response."""

    status: HTTPStatus
    body: bytes
    content_type: str = "application/json"


class Endpoints:
    """Return the response for each path. Any thread may use it."""

    def __init__(self, status: ReplicaStatus) -> None:
        self._status = status
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(ReplicaCollector(status.readings))
        self._routes = {
            "/livez": self._livez,
            "/readyz": self._readyz,
            "/metrics": self._metrics,
            "/tasks": self._tasks,
        }

    def respond(self, target: str) -> Response:
        """Return the response to a GET; ``target`` as in the request line."""
        route = self._routes.get(target.partition("?")[0])
        if route is None:
            return _json(HTTPStatus.NOT_FOUND, {"error": "not found", "paths": list(self._routes)})
        return route()

    def _livez(self) -> Response:
        if self._status.live(time.monotonic()):
            return _json(HTTPStatus.OK, {"status": "live"})
        return _json(
            HTTPStatus.SERVICE_UNAVAILABLE, {"status": "not live", "reason": "the supervisor's loop does not turn"}
        )

    def _readyz(self) -> Response:
        reason = why_not_ready(self._status.phase, self._status.readings())
        if reason is None:
            return _json(HTTPStatus.OK, {"status": "ready"})
        return _json(HTTPStatus.SERVICE_UNAVAILABLE, {"status": "not ready", "reason": reason})

    def _metrics(self) -> Response:
        return Response(HTTPStatus.OK, generate_latest(self._registry), CONTENT_TYPE_LATEST)

    def _tasks(self) -> Response:
        now = time.time()
        return _json(HTTPStatus.OK, {"processes": [describe(reading, now) for reading in self._status.readings()]})


def _json(status: HTTPStatus, value: object) -> Response:
    return Response(status, json.dumps(value).encode() + b"\n")


class _Server(ThreadingHTTPServer):
    """Listens on all interfaces, on IPv6 too if available."""

    daemon_threads = True
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # HTTPServer's version looks up the host name, which is slow without DNS.
        socketserver.TCPServer.server_bind(self)

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002 - the base class's signature
        """Return whether to serve a connection. Each takes a thread and a descriptor of the supervisor."""
        return threading.active_count() < MOST_THREADS

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class's signature
        """Log a bug of ours, but not a client that disconnected."""
        if not isinstance(sys.exception(), OSError):
            log.error("http.failed", exc_info=True)  # noqa: LOG014 - called while the exception is handled


def _handler(endpoints: Endpoints) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10.0  # seconds; a silent connection occupies its thread no longer

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
            """Do not log probes and scrapes."""

    return Handler


@contextlib.contextmanager
def serving(status: ReplicaStatus, port: int) -> Iterator[int]:
    """Serve the endpoints while entered, and yield the port. Port 0 serves nothing.

    Raise SettingsError if the port is not available.
    """
    if port == 0:
        yield 0
        return
    with _server(Endpoints(status), port) as server:
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
