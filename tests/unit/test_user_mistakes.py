"""Mistakes of a user at the command line: one clear line, and nothing is sent."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from worker import Client
from worker.cli import app
from worker.errors import SettingsError

if TYPE_CHECKING:
    from pathlib import Path

ENVIRONMENT = {
    "KAFKA_BOOTSTRAP_SERVER": "127.0.0.1:1",  # no broker listens on this port
    "KAFKA_REQUEST_TOPIC": "requests",
    "KAFKA_ACK_TOPIC": "answers",
    "KAFKA_CONSUMER_GROUP_ID": "workers",
    "KAFKA_STATE_TOPIC": "states",
    "KAFKA_CONNECT_TIMEOUT": "1s",
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run a command and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["worker", *arguments])
    return app.run()


@pytest.mark.parametrize("command", [["status"], ["tasks"], ["dlq", "list"], ["submit", "x"]])
def test_one_line_reports_a_property_that_the_client_refuses(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KAFKA_CONFIG_SECURITY_PROTOCOL", "X")
    assert run(monkeypatch, *command) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("worker: KAFKA_CONFIG_SECURITY_PROTOCOL: ")


def test_the_python_client_raises_a_settings_error_for_a_refused_property(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_CONFIG_BOGUS", "1")
    with pytest.raises(SettingsError, match="bogus"):
        Client()


def test_an_ids_file_that_cannot_be_written_is_reported_before_any_request_is_sent(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without a broker the command would fail later, with another exit code."""
    assert run(monkeypatch, "submit", "x", "--ids", "/nowhere/ids") == 2
    assert "/nowhere/ids" in capfd.readouterr().err


def test_an_ids_file_in_another_encoding_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ids = tmp_path / "ids"
    ids.write_bytes(b"\xff\n")
    assert run(monkeypatch, "wait", "--file", str(ids)) == 2
    assert "is no id of a request" in capfd.readouterr().err


@pytest.mark.parametrize("command", [["answer"], ["cancel", "--key"], ["cancel", "--all-of"]])
def test_a_key_that_is_not_text_is_accepted(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Keys are bytes. The command fails only because there is no broker."""
    assert run(monkeypatch, *command, "\udcff") == 4
    assert "Traceback" not in capfd.readouterr().err
