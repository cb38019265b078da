"""Values that are refused: one line for each says what to do."""

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
def test_wrong_values(name: str, text: str) -> None:
    """One line, which names the variable and says what it must be."""
    line = the_line(**{name: text})

    assert line.startswith(name)
    assert "must" in line


def test_the_value_is_quoted() -> None:
    """The line shows what was found, cut if it is long."""
    assert the_line(WORKER_MAX_ATTEMPTS="three").startswith("WORKER_MAX_ATTEMPTS='three' must be a whole number")
    assert len(the_line(WORKER_MAX_ATTEMPTS="x" * 5000)) < 200


def test_every_problem_at_once() -> None:
    """All that is wrong is said in one go, a line each, whoever found it."""
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
    """Else a broker or a database that answers late would get healthy processes killed."""
    line = the_line(WORKER_LIVENESS_TIMEOUT="9s")

    assert line.startswith("WORKER_LIVENESS_TIMEOUT=9s must be at least 10s")
    assert load(WORKER_LIVENESS_TIMEOUT="10s").liveness_timeout == 10.0

    line = the_line(WORKER_LIVENESS_TIMEOUT="44s", WORKER_OFFSET_STORE="package.module:store")

    assert line.startswith("WORKER_LIVENESS_TIMEOUT=44s must be at least 45s")
    assert load(WORKER_LIVENESS_TIMEOUT="45s", WORKER_OFFSET_STORE="package.module:store").liveness_timeout == 45.0


def test_topics_that_would_feed_each_other() -> None:
    """Requests, answers and dead letters need separate topics."""
    assert "KAFKA_ACK_TOPIC='a' must not be one of KAFKA_REQUEST_TOPIC" in the_line(
        KAFKA_REQUEST_TOPIC="b,a", KAFKA_ACK_TOPIC="a"
    )
    for topic in ("b", "answers"):
        line = the_line(KAFKA_REQUEST_TOPIC="a,b", KAFKA_DEAD_LETTER_TOPIC=topic)
        assert line.startswith(f"KAFKA_DEAD_LETTER_TOPIC='{topic}' must be neither")


def test_a_default_that_cannot_be() -> None:
    """A dead-letter topic whose default name would be too long is asked for; a wrong request topic is one problem."""
    assert the_line(KAFKA_REQUEST_TOPIC="x" * 249).startswith("KAFKA_DEAD_LETTER_TOPIC is not set")
    assert the_line(KAFKA_REQUEST_TOPIC="a b").startswith("KAFKA_REQUEST_TOPIC='a b'")


def test_a_port_that_kubernetes_has_set() -> None:
    """A Service called worker-http collides with our variable; the line says so."""
    assert "enableServiceLinks: false" in the_line(WORKER_HTTP_PORT="tcp://10.0.0.1:80")


@pytest.mark.parametrize("topic", ["requests", "answers", "requests.dlq"])
def test_the_state_topic_is_a_topic_by_itself(topic: str) -> None:
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
def test_what_does_not_go_together(variables: dict[str, str], said: str) -> None:
    """Each is right alone; one line says which of them to leave out, or what is missing."""
    assert said in the_line(**variables)
