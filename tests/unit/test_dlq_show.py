"""``worker dlq show``, over topics in memory."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from worker.cli import dlq_show
from worker.cli.dlq_show import ANSWER_WINDOW, show_dead_letters
from worker.codec import Response, encode_request
from worker.core.model import Partition, Record
from worker.kafka.descriptions import Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NOW = 10_000_000  # milliseconds
DEAD, ACK = Partition("requests.dlq", 0), Partition("answers", 0)


def dead_letter(offset: int, *, value: bytes = b"\xff", error: bytes = b"KeyError") -> Record:
    headers = (
        ("trace", b"t"),
        ("x-origin-topic", b"requests"),
        ("x-origin-partition", b"3"),
        ("x-origin-offset", str(offset).encode()),
        ("x-error-type", error),
    )
    return Record(DEAD, offset, f"k{offset}".encode(), value, headers, NOW + offset)


def answer(offset: int, *, to: int, text: str = "", time: int = NOW) -> Record:
    response = Response()
    response.origin.topic, response.origin.partition, response.origin.offset = "requests", 3, to
    response.error.traceback = text
    return Record(ACK, offset, b"k", response.SerializeToString(), (), time)


class Topics:
    """Both topics, and the number of answers that were read."""

    def __init__(self, dead_letters: list[Record], answers: list[Record]) -> None:
        self.settings = SimpleNamespace(dead_letter_topic=DEAD.topic, ack_topic=ACK.topic, message_format="protobuf")
        self.cluster = self
        self.read_answers = 0
        self._records = {DEAD: dead_letters, ACK: answers}

    def find(self, topic: str) -> list[Partition] | None:
        return [partition for partition in self._records if partition.topic == topic] or None

    def spans(self, partitions: list[Partition]) -> dict[Partition, Span]:
        return {partition: Span(0, len(self._records[partition])) for partition in partitions}

    def offsets_at(self, partitions: list[Partition], time_ms: int) -> dict[Partition, int]:
        rows = {partition: self._records[partition] for partition in partitions}
        return {
            partition: next((record.offset for record in row if record.timestamp_ms >= time_ms), len(row))
            for partition, row in rows.items()
        }

    def read(self, starts: Mapping[Partition, int]) -> Iterator[Record]:
        for partition, start in starts.items():
            for record in self._records[partition][start:]:
                self.read_answers += partition == ACK
                yield record


@pytest.fixture
def show(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that runs the command over its topics."""

    def run(topics: Topics, *arguments: str) -> Any:
        monkeypatch.setattr(dlq_show, "Access", lambda: topics)
        return CliRunner().invoke(show_dead_letters, arguments, standalone_mode=False)

    return run


def test_a_dead_letter_is_shown_with_its_request_and_the_traceback_of_its_answer(show: Any) -> None:
    topics = Topics(
        [dead_letter(0), dead_letter(1, value=encode_request(7, "the payload"))],
        [answer(0, to=0, text="another"), answer(1, to=1, text="Traceback: this one")],
    )
    result = show(topics, "requests/3/1")

    assert result.return_value == 0
    assert "Traceback: this one\n" in result.stdout
    assert "payload      the payload\n" in result.stdout
    assert "headers      trace=t\n" in result.stdout
    assert result.stderr == "1 dead letter shown\n"


def test_the_json_of_a_dead_letter_has_its_request_traceback_and_headers(show: Any) -> None:
    """The argument may be the place of the dead letter instead of its origin."""
    topics = Topics([dead_letter(0, value=encode_request(7, "p"))], [answer(0, to=0, text="T")])
    row = json.loads(show(topics, "requests.dlq/0/0", "--json").stdout)

    assert (row["sequence"], row["payload"], row["traceback"], row["replayed"]) == (7, "p", "T", False)
    assert row["headers"] == [["trace", "t"]]


def test_the_newest_matching_dead_letters_are_shown_oldest_first(show: Any) -> None:
    topics = Topics([dead_letter(n, error=b"KeyError" if n != 1 else b"ValueError") for n in range(4)], [])
    result = show(topics, "--match", "error_type=KeyError", "--limit", "2", "--json")

    assert [json.loads(line)["origin_offset"] for line in result.stdout.splitlines()] == [2, 3]


def test_only_answers_around_the_time_of_the_dead_letter_are_read(show: Any) -> None:
    """There may be millions of other answers."""
    answers = [answer(n, to=99, time=NOW - 2 * ANSWER_WINDOW) for n in range(5)]
    answers += [answer(n, to=99, time=NOW) for n in range(5, 7)]
    answers += [answer(n, to=99, time=NOW + 2 * ANSWER_WINDOW) for n in range(7, 20)]
    topics = Topics([dead_letter(0)], answers)
    result = show(topics, "requests/3/0")

    assert "(no traceback in the answer)" in result.stdout
    assert topics.read_answers == 2


def test_an_unknown_dead_letter_is_exit_code_1(show: Any) -> None:
    result = show(Topics([dead_letter(0)], []), "requests/3/6")

    assert (result.return_value, result.stdout) == (1, "")
    assert result.stderr == "no such dead letter in requests.dlq\n"


@pytest.mark.parametrize("arguments", [[], ["requests/3/1", "--match", "key=k1"]])
def test_either_an_origin_or_a_filter_is_needed(show: Any, arguments: list[str]) -> None:
    result = show(Topics([], []), *arguments)

    assert "either by ORIGIN or with --match" in str(result.exception)
