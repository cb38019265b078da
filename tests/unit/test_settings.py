"""The settings, read from environment variables and from files."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.unit.environment import NEEDED, SECRET, load, the_line
from worker.core.durations import duration
from worker.settings import ClientSettings
from worker.settings.values import Backoff, show_duration, size

EXAMPLE = Path(__file__).parents[2] / "config/worker.env"


# ---------------------------------------------------------------- variables


def test_defaults() -> None:
    """Five variables are required. All others have the defaults of the contract."""
    settings = load()

    assert settings.dead_letter_topic == "requests.dlq"
    assert (settings.group_protocol, settings.connect_timeout, settings.http_port) == ("auto", 60.0, 8080)
    assert (settings.handler_kwargs, settings.processes, settings.batch_size) == ({}, "auto", 1)
    assert (settings.guarantee, settings.ordering, settings.max_attempts) == ("at-least-once", "partition", 3)
    assert settings.retry_backoff == Backoff(1.0, 300.0)
    assert (settings.revoke_hold, settings.revoke_hold_classic, settings.drain_timeout) == (86_400.0, 60.0, 0.0)
    assert (settings.batch_wait, settings.batch_per_partition, settings.peek, settings.offset_store) == (
        0,
        False,
        0,
        "",
    )
    assert (settings.replica, settings.static_membership) == ("", "auto")
    assert (settings.commit_every, settings.commit_interval, settings.commit_mode) == (1, 5.0, "async")
    assert (settings.liveness_timeout, settings.log_level, settings.log_format) == (60.0, "INFO", "auto")
    assert (settings.isolation, settings.task_timeout, settings.cancel_grace) == ("thread", 0.0, 5.0)
    assert (settings.task_memory, settings.child_max_tasks, settings.child_max_memory) == (0, 0, 0)
    assert settings.extra_slots == 0
    assert settings.message_format == "protobuf"
    assert settings.echo_headers == ("traceparent", "tracestate", "correlation-id")
    assert (settings.state_topic, settings.long_after) == ("", "auto")


def test_every_variable() -> None:
    """Each variable sets its field."""
    settings = load(
        KAFKA_BOOTSTRAP_SERVER="a:1, [::1]:2 ,SASL_SSL://c:3",
        KAFKA_REQUEST_TOPIC=" one , two",
        KAFKA_DEAD_LETTER_TOPIC="dead",
        KAFKA_GROUP_PROTOCOL="Classic",
        KAFKA_CONNECT_TIMEOUT="2m",
        KAFKA_CONFIG_SECURITY_PROTOCOL="SASL_SSL",
        KAFKA_CONFIG_DEBUG="cgrp",
        WORKER_HANDLER_KWARGS='{"depth": 3}',
        WORKER_PROCESSES="4",
        WORKER_MAX_ATTEMPTS="5",
        WORKER_RETRY_BACKOFF="500ms .. 1h",
        WORKER_REVOKE_HOLD="2h",
        WORKER_REVOKE_HOLD_CLASSIC="15",
        WORKER_DRAIN_TIMEOUT="90s",
        WORKER_LIVENESS_TIMEOUT="1.5m",
        WORKER_HTTP_PORT="0",
        WORKER_LOG_LEVEL="debug",
        WORKER_LOG_FORMAT="JSON",
        KAFKA_STATE_TOPIC="states",
        WORKER_LONG_AFTER="3s",
    )

    assert settings.bootstrap == "a:1,[::1]:2,SASL_SSL://c:3"
    assert (settings.request_topics, settings.dead_letter_topic) == (("one", "two"), "dead")
    assert (settings.group_protocol, settings.connect_timeout, settings.http_port) == ("classic", 120.0, 0)
    assert settings.properties == {"security.protocol": "SASL_SSL", "debug": "cgrp"}
    assert (settings.handler_kwargs, settings.processes, settings.max_attempts) == ({"depth": 3}, 4, 5)
    assert settings.retry_backoff == (0.5, 3600.0)
    assert (settings.revoke_hold, settings.revoke_hold_classic) == (7200.0, 15.0)
    assert (settings.drain_timeout, settings.liveness_timeout) == (90.0, 90.0)
    assert (settings.log_level, settings.log_format) == ("DEBUG", "json")
    assert (settings.state_topic, settings.long_after) == ("states", 3.0)


def test_the_example_names_every_variable_with_its_default() -> None:
    """config/worker.env and the settings know the same variables and the same defaults."""
    shown = dict(line.removeprefix("#").split("=", 1) for line in EXAMPLE.read_text().splitlines() if _sets(line))
    required = ClientSettings.load(NEEDED).describe()[:4]
    defaults = {name: value for name, value, is_default in load().describe() if is_default}

    assert {*shown} == {*defaults, *(name for name, _, _ in required), "WORKER_HANDLER"}
    plain = {
        name: _plain(value) for name, value in defaults.items() if value
    }  # for an empty default the file shows an example
    assert {name: _plain(shown[name]) for name in plain} == plain


def _sets(line: str) -> bool:
    name, _, _ = line.removeprefix("#").partition("=")
    return name.isupper() and " " not in name and not name.startswith("KAFKA_CONFIG_") and "=" in line


def _plain(value: str) -> str:
    return "0" if value == "0s" else value


def test_an_empty_variable_counts_as_unset() -> None:
    """So does a blank variable. This also applies to required variables and to misspelt names."""
    assert load(WORKER_PROCESSES="", KAFKA_GROUP_PROTOCOL=" ", WORKER_HANDLR="").processes == "auto"
    assert the_line(KAFKA_ACK_TOPIC="") == "KAFKA_ACK_TOPIC is not set: topic of Response messages"


def test_load_reads_only_the_variables_that_are_passed_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not read the environment of the process."""
    monkeypatch.setenv("WORKER_PROCESSES", "7")
    monkeypatch.setenv("KAFKA_GROUP_PROTOCOL", "classic")

    assert (load().processes, load().group_protocol) == ("auto", "auto")


def test_settings_are_frozen() -> None:
    """No field can be changed."""
    with pytest.raises(ValidationError):
        load().http_port = 1  # type: ignore[misc]


def test_clients_need_no_handler() -> None:
    """The tools need no variables of the worker, and they ignore a wrong one."""
    environ = {name: text for name, text in NEEDED.items() if name.startswith("KAFKA_")}

    assert ClientSettings.load({**environ, "WORKER_PROCESSES": "many"}).group == "workers"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("90s", 90),
        ("15m", 900),
        ("2h", 7200),
        ("1d", 86_400),
        ("7", 7),
        ("0.5", 0.5),
        (" 1.5 H ", 5400),
    ],
)
def test_a_duration_is_a_number_with_an_optional_unit(text: str, seconds: float) -> None:
    """Without a unit, the number is in seconds."""
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1s", "1 s 2", "1w", "nan", "inf", "1e3", "s"])
def test_a_text_that_is_not_a_duration_is_refused(text: str) -> None:
    """The error says what a duration must be."""
    with pytest.raises(ValueError, match="must be a duration"):
        duration(text)


@pytest.mark.parametrize(
    ("text", "count"),
    [("0", 0), ("4096", 4096), ("10k", 10_000), ("10Ki", 10_240), (" 2 GiB ", 2 << 30), ("1.5MB", 1_500_000)],
)
def test_a_size_is_a_number_of_bytes_with_an_optional_unit(text: str, count: int) -> None:
    """The units are powers of 1000 or, with an ``i``, of 1024."""
    assert size(text) == count


@pytest.mark.parametrize("text", ["0s", "250ms", "1s", "1.5s", "60s", "90s", "5m", "90m", "24h", "48h"])
def test_durations_are_shown_as_they_are_written(text: str) -> None:
    """A user can copy the text into a variable."""
    assert show_duration(duration(text)) == text


@pytest.mark.parametrize(
    ("variables", "field", "value"),
    [
        ({"WORKER_GUARANTEE": "Exactly-Once"}, "guarantee", "exactly-once"),
        ({"WORKER_GUARANTEE": "at-most-once"}, "guarantee", "at-most-once"),
        ({"WORKER_ORDERING": "key"}, "ordering", "key"),
        ({"WORKER_ORDERING": "unordered"}, "ordering", "unordered"),
        ({"WORKER_BATCH_SIZE": "2", "WORKER_BATCH_WAIT": "1500ms"}, "batch_wait", 1.5),
        ({"WORKER_BATCH_PER_PARTITION": "On"}, "batch_per_partition", True),
        ({"WORKER_BATCH_PER_PARTITION": "off"}, "batch_per_partition", False),
        ({"WORKER_PEEK": "0"}, "peek", 0),
        ({"WORKER_OFFSET_STORE": "mine.stores:make"}, "offset_store", "mine.stores:make"),
        ({"WORKER_REPLICA": " rack-7.b_2 "}, "replica", "rack-7.b_2"),
        ({"KAFKA_COMMIT_EVERY": "100"}, "commit_every", 100),
        ({"KAFKA_COMMIT_INTERVAL": "2s"}, "commit_interval", 2.0),
        ({"KAFKA_COMMIT_MODE": "SYNC"}, "commit_mode", "sync"),
        ({"KAFKA_STATIC_MEMBERSHIP": "off"}, "static_membership", "off"),
        ({"WORKER_ECHO_HEADERS": " b3 ,X-Request-Id"}, "echo_headers", ("b3", "X-Request-Id")),
        ({"WORKER_FORMAT": "JSON"}, "message_format", "json"),
        ({"WORKER_ECHO_HEADERS": "none"}, "echo_headers", ()),
        ({"WORKER_ISOLATION": "Process"}, "isolation", "process"),
        ({"WORKER_TASK_TIMEOUT": "1h"}, "task_timeout", 3600.0),
        ({"WORKER_CANCEL_GRACE": "500ms"}, "cancel_grace", 0.5),
        ({"WORKER_TASK_MEMORY": "400MiB", "WORKER_ISOLATION": "process"}, "task_memory", 400 << 20),
        ({"WORKER_CHILD_MAX_TASKS": "100", "WORKER_ISOLATION": "process"}, "child_max_tasks", 100),
        ({"WORKER_CHILD_MAX_MEMORY": "1.5GB", "WORKER_ISOLATION": "process"}, "child_max_memory", 1_500_000_000),
        ({"WORKER_EXTRA_SLOTS": "2", "WORKER_ISOLATION": "process"}, "extra_slots", 2),
    ],
)
def test_a_single_variable_sets_its_field(variables: dict[str, str], field: str, value: object) -> None:
    """The variables concern the guarantee, the ordering, batches, commits and isolation."""
    assert getattr(load(**variables), field) == value


# ---------------------------------------------------------------- files


def test_a_variable_can_be_read_from_a_file(tmp_path: Path) -> None:
    """``*_FILE`` names the file. The newline at its end is dropped. A property from a file is a secret."""
    (tmp_path / "topic").write_text("from-file\r\n")
    (tmp_path / "password").write_text(f" {SECRET} \n")
    settings = load(
        KAFKA_REQUEST_TOPIC="",
        KAFKA_REQUEST_TOPIC_FILE=str(tmp_path / "topic"),
        KAFKA_CONFIG_SASL_PASSWORD_FILE=str(tmp_path / "password"),
    )

    assert settings.request_topics == ("from-file",)
    assert settings.link().given == {"sasl.password": f" {SECRET} "}


def test_a_librdkafka_property_that_names_a_file_keeps_its_path() -> None:
    """The ``….file`` properties of librdkafka are paths, and the settings do not read these files."""
    settings = load(KAFKA_CONFIG_SASL_OAUTHBEARER_ASSERTION_PRIVATE_KEY_FILE="/keys/one")

    assert settings.link().given == {"sasl.oauthbearer.assertion.private.key.file": "/keys/one"}


def test_a_variable_and_its_file_cannot_both_be_set(tmp_path: Path) -> None:
    """Neither of them takes precedence."""
    (tmp_path / "group").write_text("other")
    both = {"KAFKA_CONSUMER_GROUP_ID_FILE": str(tmp_path / "group")}

    assert the_line(**both) == (
        "KAFKA_CONSUMER_GROUP_ID and KAFKA_CONSUMER_GROUP_ID_FILE are both set: leave one of them out"
    )


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(None, "cannot be read: No such file"), (b"\n", "the file is empty"), (b"\xff\xfe", "it is not UTF-8 text")],
)
def test_one_line_reports_a_file_that_cannot_be_used(tmp_path: Path, content: bytes | None, complaint: str) -> None:
    """No other line says that the variable is missing."""
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    line = the_line(KAFKA_ACK_TOPIC="", KAFKA_ACK_TOPIC_FILE=str(path))

    assert line.startswith(f"KAFKA_ACK_TOPIC_FILE='{path}'")
    assert complaint in line


def test_a_secret_given_in_place_of_a_path_is_not_quoted() -> None:
    """A path would be quoted."""
    assert the_line(KAFKA_CONFIG_SASL_PASSWORD_FILE=SECRET).startswith("KAFKA_CONFIG_SASL_PASSWORD_FILE cannot be read")
