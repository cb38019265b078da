"""The Dockerfile and the image's health check, without building anything."""

from __future__ import annotations

import http.server
import os
import re
import socket
import subprocess
import sys
import threading
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.container.dockerfile import Dockerfile

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
DOCKERFILE = Dockerfile((ROOT / "Dockerfile").read_text(encoding="utf-8"))
HEALTHCHECK = ROOT / "config/healthcheck.py"


def test_base_image_can_be_replaced_and_is_pinned_to_a_supported_python() -> None:
    bases = [stage[0].rest.split()[0] for stage in DOCKERFILE.stages]
    default = dict(argument.rest.partition("=")[::2] for argument in DOCKERFILE.arguments)["BASE_IMAGE"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    tag = re.fullmatch(r"python:(3\.\d+)-slim", default)

    assert bases == ["${BASE_IMAGE}"] * 2
    assert tag is not None, default
    assert f"Programming Language :: Python :: {tag[1]}" in project["classifiers"]


def test_user_is_a_number_and_not_root() -> None:
    """Kubernetes cannot tell whether a name is root."""
    user, group = DOCKERFILE.last("USER").rest.split(":")

    assert int(user) > 0
    assert int(group) > 0


def test_signals_reach_the_supervisor() -> None:
    """The exec form starts no shell. A shell would be PID 1 and would not pass SIGTERM on."""
    assert DOCKERFILE.last("ENTRYPOINT").exec_form() == ["worker"]
    assert DOCKERFILE.last("CMD").exec_form() == ["run"]
    assert DOCKERFILE.last("STOPSIGNAL").rest == "SIGTERM"


def test_health_check_needs_no_shell() -> None:
    assert DOCKERFILE.last("HEALTHCHECK").exec_form()[-1] == "/opt/venv/healthcheck.py"


def test_the_last_stage_runs_no_command() -> None:
    assert [instruction.word for instruction in DOCKERFILE.stages[-1]].count("RUN") == 0


def test_pip_settings_are_in_the_builder_stage_only() -> None:
    """Everyone can read an ARG or ENV of the last stage in the image."""
    last = [i.rest for i in DOCKERFILE.stages[-1] if i.word in ("ARG", "ENV")]

    assert set(re.findall(r"\bPIP_\w+", " ".join(last))) == {"PIP_PYTHON"}


@pytest.mark.parametrize("setting", ["PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1", "PYTHONSAFEPATH=1"])
def test_the_image_sets_the_environment_variable(setting: str) -> None:
    assert setting in DOCKERFILE.last("ENV").rest.split()


def test_copied_files_exist_and_are_not_ignored() -> None:
    copied = {
        name
        for instruction in DOCKERFILE.stages[0]
        if instruction.word == "COPY"
        for name in instruction.rest.split()[:-1]
        if name != "."
    }
    allowed = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()

    assert copied
    for name in copied:
        assert (ROOT / name).exists(), name
        assert f"!{name}" in allowed


def test_build_context_is_a_short_list() -> None:
    """Everything is ignored first, so that no credentials or broker's data get into an image by accident."""
    rules = [
        line
        for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    ]

    assert rules[0] == "*"
    assert {"!worker", "!examples"} <= set(rules)
    assert not {"!tests", "!.git", "!."} & set(rules)


# ---------------------------------------------------------------- the health check


class _Livez(http.server.BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/livez" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[http.server.HTTPServer]:
    with http.server.HTTPServer(("127.0.0.1", 0), type("Handler", (_Livez,), {})) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def _check(**environment: str) -> int:
    # The check must not use the proxy.
    everything = {"PATH": os.environ["PATH"], "http_proxy": "http://127.0.0.1:9", **environment}
    return subprocess.run([sys.executable, "-I", HEALTHCHECK], env=everything, timeout=20, check=False).returncode


@pytest.mark.parametrize(("status", "expected"), [(200, 0), (503, 1), (404, 1)])
def test_healthy_only_if_livez_is_200(server: http.server.HTTPServer, status: int, expected: int) -> None:
    server.RequestHandlerClass.status = status  # type: ignore[attr-defined]

    assert _check(WORKER_HTTP_PORT=str(server.server_port)) == expected


def test_unhealthy_if_nothing_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # taken, but not listening

        assert _check(WORKER_HTTP_PORT=str(unused.getsockname()[1])) == 1


def test_healthy_if_the_endpoints_are_off() -> None:
    assert _check(WORKER_HTTP_PORT="0") == 0


def test_the_port_can_be_read_from_a_file(server: http.server.HTTPServer, tmp_path: Path) -> None:
    file = tmp_path / "port"
    file.write_text(f"{server.server_port}\n")

    assert _check(WORKER_HTTP_PORT_FILE=str(file)) == 0
