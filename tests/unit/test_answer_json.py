"""Answers as lines of JSON."""

from __future__ import annotations

import json

from google.protobuf.timestamp_pb2 import Timestamp

from worker.cli.answers import as_json, outcome_of
from worker.codec import DEAD_LETTERED, OK, Response
from worker.core.model import Partition, Record


def record(key: bytes = b"k") -> Record:
    return Record(Partition("answers", 2), 40, key, b"")


def test_the_json_of_an_answer_has_all_its_fields() -> None:
    """They include the result, the origin, the times, and the partition and offset of the answer."""
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


def test_binary_results_and_keys_are_shown_as_base64() -> None:
    """The bytes survive in JSON, and the name of the field shows the encoding."""
    shown = as_json(record(key=b"\xfe"), Response(result=b"\xff"))

    assert shown["result_base64"] == "/w=="
    assert shown["key_base64"] == "/g=="
    assert "result" not in shown


def test_a_failure_is_shown_with_its_error() -> None:
    """The request was dead-lettered."""
    response = Response(outcome=DEAD_LETTERED)
    response.error.type, response.error.message = "Reject", "why"

    assert as_json(record(), response)["error"] == {"type": "Reject", "message": "why", "traceback": ""}


def test_an_answer_with_only_the_two_oldest_fields_has_an_outcome() -> None:
    """The fields are ``sequence`` and ``isprocessed``."""
    assert outcome_of(Response(isprocessed=True)) == "OK"
    assert outcome_of(Response(isprocessed=False)) == "FAILED"
