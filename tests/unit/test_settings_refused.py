"""Values that are refused. One line about each says what to do."""

from __future__ import annotations

import pytest

from tests.unit.environment import lines, load, the_line

WRONG = {
    "KAFKA_BOOTSTRAP_SERVER": ["kafka:", "kafka:99999", "a:1,,b:2", "a b", "http://a:1/path"],
    "KAFKA_REQUEST_TOPIC": ["a b", "a,", "a,a", ".", "ü", "x" * 250],
    "KAFKA_ACK_TOPIC": ["a,b", ".."],
    "KAFKA_GROUP_PROTOCOL": ["eager"],
    "KAFKA_CONNECT_TIMEOUT": ["0", "soon"],
    "WORKER_HANDLER": ["module", "module:", "a-b:c", "a:b:c", "a.:b", "a b:c"],
    "WORKER_HANDLER_KWARGS": ["[1]", "{", "3", "depth=3", "[" * 100_000],
    "WORKER_PROCESSES": ["0", "-1", "many", "1.5"],
    "WORKER_GUARANTEE": ["maybe"],
    "WORKER_ORDERING": ["random"],
    "WORKER_BATCH_SIZE": ["0"],
    "WORKER_BATCH_WAIT": ["-1s", "soon"],
    "WORKER_BATCH_PER_PARTITION": ["maybe"],
    "WORKER_PEEK": ["-1", "all"],
    "WORKER_OFFSET_STORE": ["module"],
    "WORKER_REPLICA": ["a b", "a/b", "x" * 101],
    "KAFKA_STATIC_MEMBERSHIP": ["always"],
    "KAFKA_COMMIT_EVERY": ["0"],
    "KAFKA_COMMIT_INTERVAL": ["0s"],
    "KAFKA_COMMIT_MODE": ["later"],
    "WORKER_MAX_ATTEMPTS": ["0", "three"],
    "WORKER_ISOLATION": ["container"],
    "WORKER_TASK_TIMEOUT": ["soon"],
    "WORKER_CANCEL_GRACE": ["-1s"],
    "WORKER_TASK_MEMORY": ["much", "-1", "4XB", "1e9", "9" * 400, "9" * 400 + "GB"],
    "WORKER_CHILD_MAX_TASKS": ["-1"],
    "WORKER_CHILD_MAX_MEMORY": ["1.5.5GiB"],
    "WORKER_RETRY_BACKOFF": ["1s", "5m..1s", "0s..1s", "1s..", "1s...2s"],
    "WORKER_REVOKE_HOLD": ["25h", "2d"],
    "WORKER_REVOKE_HOLD_CLASSIC": ["25h"],
    "WORKER_DRAIN_TIMEOUT": ["-5", "never"],
    "WORKER_LIVENESS_TIMEOUT": ["0s", "9s"],
    "WORKER_HTTP_PORT": ["65536", "-1", "http"],
    "WORKER_LOG_LEVEL": ["LOUD"],
    "WORKER_LOG_FORMAT": ["xml"],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in WRONG.items() for text in texts])
def test_one_line_names_the_variable_with_a_wrong_value(name: str, text: str) -> None:
    """The line also says what the value must be."""
    line = the_line(**{name: text})

    assert line.startswith(name)
    assert "must" in line


def test_the_line_quotes_the_wrong_value() -> None:
    """A long value is cut."""
    assert the_line(WORKER_MAX_ATTEMPTS="three").startswith("WORKER_MAX_ATTEMPTS='three' must be a whole number")
    assert len(the_line(WORKER_MAX_ATTEMPTS="x" * 5000)) < 200


def test_all_problems_are_reported_together() -> None:
    """Each problem has one line, whichever check found it."""
    found = lines(
        WORKER_HANDLR="x", KAFKA_ACK_TOPIC="", WORKER_PROCESSES="x", KAFKA_CONFIG_GROUP_ID="x", KAFKA_CONFIG_ACKS="1"
    )

    assert [line.split(" ")[0].split("=")[0] for line in found] == [
        "WORKER_HANDLR",
        "KAFKA_ACK_TOPIC",
        "WORKER_PROCESSES",
        "KAFKA_CONFIG_ACKS",
        "KAFKA_CONFIG_GROUP_ID",
    ]


def test_a_liveness_timeout_must_be_longer_than_a_healthy_process_waits() -> None:
    """Otherwise healthy processes are killed when a broker or a database answers late."""
    line = the_line(WORKER_LIVENESS_TIMEOUT="9s")

    assert line.startswith("WORKER_LIVENESS_TIMEOUT=9s must be at least 10s")
    assert load(WORKER_LIVENESS_TIMEOUT="10s").liveness_timeout == 10.0

    line = the_line(WORKER_LIVENESS_TIMEOUT="44s", WORKER_OFFSET_STORE="package.module:store")

    assert line.startswith("WORKER_LIVENESS_TIMEOUT=44s must be at least 45s")
    assert load(WORKER_LIVENESS_TIMEOUT="45s", WORKER_OFFSET_STORE="package.module:store").liveness_timeout == 45.0


def test_requests_answers_and_dead_letters_need_separate_topics() -> None:
    """Otherwise records of one kind would be read as records of another kind."""
    assert "KAFKA_ACK_TOPIC='a' must not be one of KAFKA_REQUEST_TOPIC" in the_line(
        KAFKA_REQUEST_TOPIC="b,a", KAFKA_ACK_TOPIC="a"
    )
    for topic in ("b", "answers"):
        line = the_line(KAFKA_REQUEST_TOPIC="a,b", KAFKA_DEAD_LETTER_TOPIC=topic)
        assert line.startswith(f"KAFKA_DEAD_LETTER_TOPIC='{topic}' must be neither")


def test_the_dead_letter_topic_must_be_set_if_its_default_name_is_too_long() -> None:
    """A wrong request topic causes no second line about the dead-letter topic."""
    assert the_line(KAFKA_REQUEST_TOPIC="x" * 249).startswith("KAFKA_DEAD_LETTER_TOPIC is not set")
    assert the_line(KAFKA_REQUEST_TOPIC="a b").startswith("KAFKA_REQUEST_TOPIC='a b'")


def test_the_line_explains_a_port_that_kubernetes_has_set() -> None:
    """Kubernetes sets WORKER_HTTP_PORT for a Service that is called worker-http."""
    assert "enableServiceLinks: false" in the_line(WORKER_HTTP_PORT="tcp://10.0.0.1:80")


@pytest.mark.parametrize("topic", ["requests", "answers", "requests.dlq"])
def test_the_state_topic_must_be_a_separate_topic(topic: str) -> None:
    """Compaction would remove requests and answers."""
    assert f"KAFKA_STATE_TOPIC={topic!r} must be a separate topic" in the_line(KAFKA_STATE_TOPIC=topic)


@pytest.mark.parametrize("text", ["0", "soon", "-1s"])
def test_when_a_task_is_a_long_one(text: str) -> None:
    assert "must be auto, or a duration" in the_line(WORKER_LONG_AFTER=text)


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"WORKER_PEEK": "2", "WORKER_BATCH_SIZE": "2"}, "WORKER_PEEK"),
        ({"KAFKA_STATIC_MEMBERSHIP": "on"}, "needs WORKER_REPLICA"),
        ({"WORKER_OFFSET_STORE": "a:b", "WORKER_GUARANTEE": "at-most-once"}, "WORKER_GUARANTEE"),
        ({"WORKER_OFFSET_STORE": "a:b", "WORKER_ORDERING": "key"}, "WORKER_ORDERING='key'"),
        ({"WORKER_OFFSET_STORE": "a:b", "WORKER_BATCH_SIZE": "2"}, "WORKER_BATCH_SIZE"),
        ({"WORKER_ISOLATION": "process", "WORKER_BATCH_SIZE": "2"}, "unset WORKER_BATCH_SIZE"),
        ({"WORKER_ISOLATION": "process", "WORKER_OFFSET_STORE": "a:b"}, "unset WORKER_OFFSET_STORE"),
        ({"WORKER_TASK_MEMORY": "1GiB"}, "set WORKER_ISOLATION=process"),
        ({"WORKER_CHILD_MAX_TASKS": "1"}, "set WORKER_ISOLATION=process"),
        ({"WORKER_EXTRA_SLOTS": "1"}, "WORKER_EXTRA_SLOTS"),
        ({"WORKER_CHILD_MAX_MEMORY": "1GiB"}, "set WORKER_ISOLATION=process"),
    ],
)
def test_variables_that_do_not_work_together_are_refused(variables: dict[str, str], said: str) -> None:
    """Each value is valid alone. One line says which variable to unset, or which one is missing."""
    assert said in the_line(**variables)
