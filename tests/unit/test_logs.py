"""The format of log lines, of the worker and of libraries."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from worker import logs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Leave the logging of the test run as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()


@pytest.fixture
def lines(capfd: pytest.CaptureFixture[str]) -> Lines:
    """Return a function that returns the JSON lines on stderr since its last call."""
    return lambda: [json.loads(line) for line in capfd.readouterr().err.splitlines()]


def test_a_json_line_has_a_time_a_level_an_event_and_a_process(lines: Lines) -> None:
    logs.configure("INFO", "json", process="host-3")
    structlog.get_logger("poller").info("partitions.assigned", partitions=["requests[0]"])
    (line,) = lines()
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "level": "info",
        "event": "partitions.assigned",
        "process": "host-3",
        "logger": "poller",
        "partitions": ["requests[0]"],
    }


def test_the_level_applies_to_the_worker_and_to_libraries(lines: Lines) -> None:
    logs.configure("WARNING", "json")
    structlog.get_logger().info("a")
    logging.getLogger("library").info("b")
    structlog.get_logger().warning("c")
    logging.getLogger("library").warning("d")
    assert [line["event"] for line in lines()] == ["c", "d"]


def test_log_lines_of_libraries_have_the_same_format(lines: Lines) -> None:
    logs.configure("DEBUG", "json")
    library = logging.getLogger("library")
    library.warning("%d %% of %s", 5, "it")
    library.log(25, "between two levels")
    library.log(5, "below all levels")
    library.warning("does not %d fit", "x")
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        logging.captureWarnings(capture=True)  # ``catch_warnings`` has restored the original function
        warnings.warn("old", stacklevel=1)
    said = [(line["level"], line["event"]) for line in lines()]
    assert said[:3] == [("warning", "5 % of it"), ("info", "between two levels"), ("warning", "does not %d fit")]
    assert "UserWarning: old" in said[3][1]


def test_a_log_line_of_the_kafka_client_is_split_into_fields(lines: Lines) -> None:
    logs.configure("INFO", "json")
    logging.getLogger("librdkafka").error("%s [%s] %s", "FAIL", "rdkafka#consumer-1", "connect refused")
    (line,) = lines()
    assert (line["event"], line["facility"], line["message"]) == ("client.log", "FAIL", "connect refused")


@pytest.mark.parametrize("fmt", ["json", "console"])
def test_an_exception_is_shown_with_its_traceback(fmt: str, capfd: pytest.CaptureFixture[str]) -> None:
    logs.configure("INFO", fmt)
    try:
        int("broken")
    except ValueError:
        structlog.get_logger().exception("process.failed")
        logging.getLogger("library").exception("library failed")
    shown = capfd.readouterr().err
    assert shown.count("Traceback (most recent call last)") == 2
    assert shown.count("ValueError: invalid literal") == 2


def test_any_value_can_be_logged(lines: Lines) -> None:
    logs.configure("INFO", "json")
    structlog.get_logger().info("x", strange=object(), bytes=b"\xff", text="é\udcff")
    (line,) = lines()
    assert line["text"] == "é\udcff"
    assert line["strange"].startswith("<object")


def test_a_full_disk_loses_the_log_line_but_raises_no_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_fd: int, _data: bytes) -> int:
        raise OSError(28, "No space left on device")

    logs.configure("INFO", "json")
    monkeypatch.setattr(os, "write", full)
    structlog.get_logger().info("x")
    logs.print_error("y")


@pytest.mark.parametrize("format_", ["json", "console"])
def test_an_error_is_printed_as_one_plain_line(capfd: pytest.CaptureFixture[str], format_: str) -> None:
    logs.configure("CRITICAL", format_)
    logs.print_error("no such topic\n\n  create it\n")
    assert capfd.readouterr().err == "worker: no such topic; create it\n"


def test_the_format_auto_is_console_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert logs.resolve("auto") == "console"
    monkeypatch.setattr("sys.stderr.isatty", lambda: False)
    assert logs.resolve("auto") == "json"
    assert logs.resolve("console") == "console"


def test_a_repeated_client_error_is_logged_once_a_minute() -> None:
    """A lookup that is tried every second while the coordinator is away must not fill the log."""
    now = [0.0]
    repeats = logs.Repeats(lambda: now[0])
    through = []
    for second in range(130):
        now[0] = float(second)
        with contextlib.suppress(structlog.DropEvent):
            through.append(repeats(None, "", {"event": "client.error", "code": "_TIMED_OUT", "reason": "no answer"}))
    assert [line.get("repeated") for line in through] == [None, 59, 59]


def test_other_log_lines_are_not_limited() -> None:
    repeats = logs.Repeats(lambda: 0.0)
    errors: list[dict[str, Any]] = [{"event": "client.error", "code": code, "reason": "x"} for code in ("A", "B")]
    tasks: list[dict[str, Any]] = [{"event": "task.finished", "offset": 1}] * 2
    assert [repeats(None, "", dict(line)) for line in (*errors, *tasks)] == [*errors, *tasks]
    with pytest.raises(structlog.DropEvent):
        repeats(None, "", dict(errors[0]))


def test_the_log_has_one_line_for_a_repeated_client_error(lines: Lines) -> None:
    logs.configure("INFO", "json")
    for _ in range(3):
        structlog.get_logger("kafka").warning("client.error", code="_TRANSPORT", reason="gone")
    assert len(lines()) == 1
