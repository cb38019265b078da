"""Requests and answers in protobuf's JSON mapping, and texts that are not JSON requests."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from pipeline.settings import KafkaSettings
from tests.unit.support import a_task
from worker.codec import CANCELLED, OK, AnswerEncoder, MalformedError, Request, Response, encode_request
from worker.core.model import Failure, Outcome, Record, Verdict
from worker.errors import SettingsError
from worker.formats import FORMATS, JSON, decode_answer
from worker.isolation.config import ChildConfig
from worker.isolation.page import SIZE
from worker.isolation.runner import ChildRunner

if TYPE_CHECKING:
    from worker.handlers.context import Context

sequences = st.integers(min_value=-(2**31), max_value=2**31 - 1)
payloads = st.text(st.characters(exclude_categories=["Cs"]))


def read(text: str | bytes | None) -> tuple[int, str]:
    request = JSON.decode_request(text.encode() if isinstance(text, str) else text)
    return request.sequence, request.payload


# -- requests


@given(sequences, payloads)
def test_an_encoded_request_decodes_to_the_same_request(sequence: int, payload: str) -> None:
    for form in FORMATS.values():
        value = form.encode_request(sequence, payload)
        if value:  # protobuf encodes a request of default values as no bytes
            assert form.decode_request(value) == Request(sequence=sequence, payload=payload)


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ('{"payload": "a", "sequence": 7}', (7, "a")),
        ('\n { "payload" : "a" } ', (0, "a")),
        ('{"sequence": 7}', (7, "")),
        ('{"sequence": "7", "payload": null}', (7, "")),  # as protobuf's JSON mapping allows
        ('{"payload": "{\\"a\\": 1}"}', (0, '{"a": 1}')),
    ],
)
def test_a_json_object_of_request_fields_is_a_request(text: str, request_: tuple[int, str]) -> None:
    assert read(text) == request_


@pytest.mark.parametrize(
    "text",
    [
        "hello",
        '{"a": 1}',
        "{}",
        '{"payload": "a", "priority": 1}',
        '["payload"]',
        '"payload"',
        '{"payload": "a"',
        '{"payload": "a"} trailing',
        " ",
        "{" * 100_000,
        '{"a":' * 100_000,
    ],
)
def test_any_other_text_is_the_whole_payload(text: str) -> None:
    assert read(text) == (0, text)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "null value"),
        (b"", "empty value"),
        (b"\xff{", "not UTF-8 text: invalid start byte at byte 1"),
        (b'{"payload": {"a": 1}}', "payload"),
        (b'{"payload": "a", "sequence": 1.5}', "sequence"),
        (b'{"sequence": 2147483648}', "sequence"),
        (b'{"payload": "\\ud800"}', "not a Request"),
    ],
)
def test_a_value_that_cannot_be_a_request_is_malformed(value: bytes | None, reason: str) -> None:
    with pytest.raises(MalformedError, match=reason):
        JSON.decode_request(value)


# -- answers


def an_answer(form: str) -> bytes:
    task = a_task(headers=(("x-run", b"r-1"),), attempt=2, timestamp_ms=1_700_000_000_123)
    outcome = Outcome(task, Verdict.OK, 7, 1_700_000_001 * 10**9, b"\xff", None, None, 1_700_000_002 * 10**9)
    return AnswerEncoder("worker-0", FORMATS[form].encode_response).ok(outcome)


def test_an_answer_is_the_same_in_both_formats() -> None:
    answer = decode_answer(an_answer("json"))
    assert answer == decode_answer(an_answer("protobuf"))
    assert (answer.outcome, answer.result, answer.origin.offset) == (OK, b"\xff", 42)


def test_a_json_answer_follows_protobufs_json_mapping() -> None:
    fields = json.loads(an_answer("json"))
    assert (fields["isprocessed"], fields["outcome"], fields["result"]) == (True, "OK", "/w==")
    assert fields["origin"] == {"topic": "requests", "partition": 3, "offset": "42"}
    assert fields["startedAt"] == "2023-11-14T22:13:21Z"
    assert "error" not in fields


def test_a_failed_answer_has_the_fields_sequence_and_isprocessed() -> None:
    """A reader of only these two fields finds both, although they have their default values."""
    encoder = AnswerEncoder("worker-0", JSON.encode_response)
    value = encoder.unprocessed(Outcome(a_task(), Verdict.DROPPED), Failure("Cancelled", "by you"), "CANCELLED")
    fields = json.loads(value)
    assert (fields["sequence"], fields["isprocessed"]) == (0, False)
    assert decode_answer(value).outcome == CANCELLED


def test_a_reader_skips_fields_of_a_later_version() -> None:
    assert decode_answer(b'{"sequence": 3, "isprocessed": true, "later": {}}') == Response(sequence=3, isprocessed=True)


@pytest.mark.parametrize("value", [None, b"", b"\xff", b"{", b'{"sequence": []}', b"{" * 100_000, b'{"a":' * 100_000])
def test_a_value_that_is_not_an_answer_is_malformed(value: bytes | None) -> None:
    with pytest.raises(MalformedError):
        decode_answer(value)


@given(st.binary())
def test_bytes_that_begin_with_a_brace_are_never_a_protobuf_answer(rest: bytes) -> None:
    """So a reader recognizes the format by the first byte."""
    try:
        decode_answer(b"{" + rest)
    except MalformedError:
        return
    json_format.Parse(b"{" + rest, Response(), ignore_unknown_fields=True)


# -- where the formats are used


def test_a_child_process_decodes_requests_in_its_configured_format() -> None:
    seen: list[Any] = []

    def handler(request: Request, context: Context) -> None:
        seen.append((request.payload, [one.payload for one in context.upcoming]))

    config = ChildConfig("", {}, 3, ["requests"], "INFO", "json", "worker-0", "json")
    words = memoryview(bytearray(SIZE)).cast("Q")
    descriptor = os.eventfd(0)
    try:
        task = a_task(value=b"hello")
        task.upcoming = (Record(task.record.partition, 6, None, b'{"payload": "next"}'),)
        outcome = ChildRunner(handler, config, words, descriptor, lambda _report: None).run(task)
    finally:
        os.close(descriptor)
    assert (outcome.verdict, seen) == (Verdict.OK, [("hello", ["next"])])


def test_the_pipeline_refuses_the_json_format() -> None:
    environment = {
        "KAFKA_BOOTSTRAP_SERVER": "a:1",
        "KAFKA_REQUEST_TOPIC": "requests",
        "KAFKA_ACK_TOPIC": "answers",
        "WORKER_FORMAT": "json",
    }
    with pytest.raises(SettingsError, match="WORKER_FORMAT=json: the pipeline reads and writes protobuf"):
        KafkaSettings.load(environment)


def test_the_protobuf_format_encodes_a_request_as_the_codec_does() -> None:
    assert FORMATS["protobuf"].encode_request(7, "a") == encode_request(7, "a")
