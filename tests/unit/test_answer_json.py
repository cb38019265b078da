"""Answers as lines of JSON."""

from __future__ import annotations

import json

from google.protobuf.timestamp_pb2 import Timestamp

from worker.cli.answers import as_json, outcome_of
from worker.codec import DEAD_LETTERED, OK, Response
from worker.core.model import Partition, Record


def record(key: bytes = b"k") -> Record:
    return Record(Partition("answers", 2), 40, key, b"")


def test_an_answer_is_shown_whole() -> None:
    """Result, origin, times and the place of the answer itself are there."""
    response = Response(sequence=3, isprocessed=True, outcome=OK, result="é".encode(), attempt=1, worker="w-0")
    response.origin.topic, response.origin.partition, response.origin.offset = "requests", 1, 9
    response.started_at.CopyFrom(Timestamp(seconds=1))

    shown = as_json(record(), response)

    assert shown["outcome"] == "OK"
    assert (shown["sequence"], shown["result"], shown["key"]) == (3, "é", "k")
    assert shown["origin"] == {"topic": "requests", "partition": 1, "offset": 9}
    assert shown["answer"] == {"partition": 2, "offset": 40}
    assert shown["started_at"] == "1970-01-01T00:00:01Z"
    assert shown["finished_at"] is None
    assert shown["error"] is None
    json.dumps(shown)


def test_results_that_are_no_text_are_base64() -> None:
    """Bytes survive in JSON; the name says what they are."""
    shown = as_json(record(key=b"\xfe"), Response(result=b"\xff"))

    assert shown["result_base64"] == "/w=="
    assert shown["key_base64"] == "/g=="
    assert "result" not in shown


def test_a_failure_says_why() -> None:
    """The error of a dead-lettered request is shown."""
    response = Response(outcome=DEAD_LETTERED)
    response.error.type, response.error.message = "Reject", "why"

    assert as_json(record(), response)["error"] == {"type": "Reject", "message": "why", "traceback": ""}


def test_a_writer_of_two_fields_is_understood() -> None:
    """An answer with nothing but sequence and isprocessed has an outcome too."""
    assert outcome_of(Response(isprocessed=True)) == "OK"
    assert outcome_of(Response(isprocessed=False)) == "FAILED"
