"""Messages have the bytes that protobuf writes, and older and newer programs can read each other's messages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.support import PARTITION, a_task
from worker.codec import (
    CANCELLED,
    DEAD_LETTERED,
    EXPIRED,
    OK,
    AnswerEncoder,
    MalformedError,
    Request,
    Response,
    decode_request,
    decode_response,
    encode_request,
)
from worker.core.model import Failure, Headers, Outcome, Partition, Verdict
from worker.formats import FORMATS, decode_answer

INT32 = descriptor_pb2.FieldDescriptorProto.TYPE_INT32
BOOL = descriptor_pb2.FieldDescriptorProto.TYPE_BOOL
STRING = descriptor_pb2.FieldDescriptorProto.TYPE_STRING

sequences = st.integers(min_value=-(2**31), max_value=2**31 - 1)
payloads = st.text(st.characters(exclude_categories=["Cs"]))
nanoseconds = st.integers(min_value=1, max_value=4 * 10**18)


def message(name: str, **fields: tuple[int, int]) -> type[Message]:
    """Return a message type of another version. ``fields`` have a number and a type for each name."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{name}.proto", package="other", syntax="proto3")
    described = file.message_type.add(name=name)
    for field, (number, kind) in fields.items():
        described.field.add(name=field, number=number, type=kind, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"other.{name}"))


OldRequest = message("OldRequest", sequence=(1, INT32), payload=(2, STRING))
NewRequest = message("NewRequest", sequence=(1, INT32), payload=(2, STRING), deadline=(10, STRING), huge=(500, STRING))
OldResponse = message("OldResponse", sequence=(1, INT32), isprocessed=(2, BOOL))


def seen_by_the_old(value: bytes) -> tuple[int, bool]:
    old: Any = OldResponse.FromString(value)
    return old.sequence, old.isprocessed


def an_outcome(**fields: object) -> Outcome:
    return Outcome(a_task(attempt=2), Verdict.OK, **fields)  # type: ignore[arg-type]


# ---------------------------------------------------------------- requests


@given(sequence=sequences, payload=payloads)
@example(sequence=0, payload="x")
@example(sequence=-1, payload="")
@example(sequence=5, payload="\0 ключ 🗝")
def test_a_decoded_request_equals_the_encoded_one(sequence: int, payload: str) -> None:
    """Only a request of default values has no bytes, and so cannot be distinguished from an empty record."""
    value = encode_request(sequence, payload)
    assert value == Request(sequence=sequence, payload=payload).SerializeToString()
    if (sequence, payload) == (0, ""):
        assert value == b""
    else:
        request = decode_request(value)
        assert (request.sequence, request.payload) == (sequence, payload)


@given(sequence=sequences, payload=payloads, deadline=payloads)
@example(sequence=0, payload="", deadline="")
def test_requests_of_older_and_newer_writers_can_be_read(sequence: int, payload: str, deadline: str) -> None:
    """The fields that a newer writer has added reach the handler."""
    old = OldRequest(sequence=sequence, payload=payload).SerializeToString()
    new = NewRequest(sequence=sequence, payload=payload, deadline=deadline, huge="h").SerializeToString()
    for value in filter(None, (old, new)):
        request = decode_request(value)
        assert (request.sequence, request.payload) == (sequence, payload)
    assert NewRequest.FromString(decode_request(new).SerializeToString()) == NewRequest.FromString(new)


@given(value=st.binary(min_size=1, max_size=40))
@example(value=b"\x12\x01\xff")  # a payload that is not UTF-8
@example(value=b"\x08")  # cut off
@example(value=b"\x00")
@example(value=b"not a request")
def test_random_bytes_are_malformed_exactly_when_protobuf_says_so(value: bytes) -> None:
    """No other exception is raised, because these bytes come from the network."""
    try:
        expected = Request.FromString(value)
    except DecodeError:
        with pytest.raises(MalformedError, match="not a Request"):
            decode_request(value)
    else:
        assert decode_request(value) == expected


@pytest.mark.parametrize("decode", [decode_request, decode_response])
@pytest.mark.parametrize(("value", "text"), [(None, "null value"), (b"", "empty value")])
def test_a_null_or_empty_value_is_malformed(decode: object, value: bytes | None, text: str) -> None:
    """To protobuf an empty value is a message of default values. To the worker it is not a request."""
    with pytest.raises(MalformedError, match=text):
        decode(value)  # type: ignore[operator]


def test_bytes_that_are_not_a_response_are_malformed() -> None:
    with pytest.raises(MalformedError, match="not a Response"):
        decode_response(b"\xff\xff")


@pytest.mark.parametrize("sequence", [2**31, -(2**31) - 1])
def test_a_sequence_beyond_int32_is_refused(sequence: int) -> None:
    with pytest.raises(ValueError, match="range"):
        encode_request(sequence, "x")


# ---------------------------------------------------------------- answers


@given(sequence=sequences, result=st.binary(), started=nanoseconds, took=nanoseconds, cpu=st.floats(0, 1e6))
@example(sequence=0, result=b"", started=1, took=1, cpu=0.0)
def test_a_successful_answer_has_all_fields(sequence: int, result: bytes, started: int, took: int, cpu: float) -> None:
    """A reader that knows only the two oldest fields can read it too."""
    outcome = an_outcome(sequence=sequence, result=result, started_ns=started, finished_ns=started + took)
    outcome.cpu_seconds = cpu
    value = AnswerEncoder("host-1").ok(outcome)
    answer = decode_response(value)
    assert (answer.sequence, answer.isprocessed, answer.outcome, answer.result) == (sequence, True, OK, result)
    assert (answer.origin.topic, answer.origin.partition, answer.origin.offset) == (*PARTITION, 42)
    assert (answer.attempt, answer.worker, answer.cpu_seconds) == (2, "host-1", cpu)
    assert answer.started_at.ToNanoseconds() == started
    assert answer.finished_at.ToNanoseconds() == started + took
    assert not answer.HasField("error")
    assert seen_by_the_old(value) == (sequence, True)


@pytest.mark.parametrize("kind", ["ok", "unprocessed"])
def test_an_answer_names_the_run_and_the_time_of_its_request(kind: str) -> None:
    """Both come from the request's record: its header and its timestamp."""
    outcome = an_outcome(sequence=1, started_ns=1, finished_ns=2)
    headers = (("x-run", b"earlier"), ("x-run", b"r-1"), ("x-timeout", b"3"))
    outcome.task.record = replace(outcome.task.record, headers=headers, timestamp_ms=1_700_000_000_123)
    encoder = AnswerEncoder("w")
    value = encoder.ok(outcome) if kind == "ok" else encoder.unprocessed(outcome, Failure("E", ""), "EXPIRED")
    answer = decode_response(value)
    assert (answer.run, answer.requested_at.ToMilliseconds()) == ("r-1", 1_700_000_000_123)


@pytest.mark.parametrize("kind", ["ok", "unprocessed"])
@pytest.mark.parametrize("timestamp_ms", [0, -1])
def test_the_answer_to_a_request_without_run_and_time_has_neither_field(kind: str, timestamp_ms: int) -> None:
    outcome = an_outcome(sequence=1, started_ns=1, finished_ns=2)
    outcome.task.record = replace(outcome.task.record, headers=(("x-run", None),), timestamp_ms=timestamp_ms)
    encoder = AnswerEncoder("w")
    value = encoder.ok(outcome) if kind == "ok" else encoder.unprocessed(outcome, Failure("E", ""), "EXPIRED")
    answer = decode_response(value)
    assert (answer.run, answer.HasField("requested_at")) == ("", False)


def test_a_run_that_is_not_utf8_is_decoded_with_replacements() -> None:
    outcome = an_outcome(sequence=1)
    outcome.task.record = replace(outcome.task.record, headers=(("x-run", b"a\xff"),))
    assert decode_response(AnswerEncoder("w").ok(outcome)).run == "a\ufffd"


moments = st.integers(0, 3_000_000_000)  # nanoseconds: often of the same second
places = st.builds(Partition, st.sampled_from(["a", "b"]), st.integers(0, 2))


runs: Any = st.sampled_from([(), (("x-run", b"r-1"),), (("other", b"1"), ("x-run", b"r-2")), (("x-run", None),)])
stamps = st.one_of(st.just(0), st.integers(-1, 3_000), st.integers(1, 2**63 - 1))  # milliseconds


@given(
    results=st.lists(
        st.tuples(sequences, st.binary(max_size=5), places, moments, moments, runs, stamps), min_size=2, max_size=6
    ),
)
def test_an_answer_contains_nothing_of_the_previous_one(
    results: list[tuple[int, bytes, Partition, int, int, Headers, int]],
) -> None:
    """The encoder reuses one message. Each answer is the one that a new encoder would write."""
    encoder = AnswerEncoder("w")
    for sequence, result, partition, started, took, headers, stamp in results:
        outcome = an_outcome(sequence=sequence, result=result, started_ns=started, finished_ns=started + took)
        record = replace(outcome.task.record, partition=partition, headers=headers, timestamp_ms=stamp)
        outcome.task.record = record
        assert encoder.ok(outcome) == AnswerEncoder("w").ok(outcome)


@pytest.mark.parametrize(
    ("name", "number"), [("DEAD_LETTERED", DEAD_LETTERED), ("EXPIRED", EXPIRED), ("CANCELLED", CANCELLED)]
)
def test_an_answer_without_a_result_has_the_error(name: str, number: int) -> None:
    """A reader that knows only the two oldest fields sees that the request was not processed."""
    failure = Failure("ValueError", "no such thing", "Traceback …")
    outcome = an_outcome(sequence=-9, started_ns=1_500_000_000, finished_ns=2_500_000_000, result=b"not this")
    value = AnswerEncoder("w").unprocessed(outcome, failure, name)
    answer = decode_response(value)
    assert (answer.sequence, answer.isprocessed, answer.outcome, answer.result) == (-9, False, number, b"")
    assert (answer.error.type, answer.error.message, answer.error.traceback) == failure
    assert (answer.origin.topic, answer.origin.partition, answer.origin.offset) == (*PARTITION, 42)
    assert (answer.attempt, answer.worker) == (2, "w")
    assert (answer.started_at.ToNanoseconds(), answer.finished_at.ToNanoseconds()) == (1_500_000_000, 2_500_000_000)
    assert seen_by_the_old(value) == (-9, False)


def test_the_answer_to_a_request_that_never_started_has_no_times() -> None:
    failure = Failure("MalformedRequest", "")
    answer = decode_response(AnswerEncoder("w").unprocessed(an_outcome(), failure, "DEAD_LETTERED"))
    assert not answer.HasField("started_at")
    assert not answer.HasField("finished_at")


YEAR_10000 = 253_402_300_800_000  # milliseconds


@pytest.mark.parametrize(
    ("stamp", "kept"), [(0, False), (1, True), (YEAR_10000 - 1, True), (YEAR_10000, False), (2**63 - 1, False)]
)
@pytest.mark.parametrize("outcome", ["OK", "DEAD_LETTERED"])
@pytest.mark.parametrize("name", FORMATS)
def test_a_timestamp_that_no_answer_can_hold_is_left_out(name: str, outcome: str, stamp: int, *, kept: bool) -> None:
    """A producer that counts in microseconds writes such timestamps."""
    attempt = an_outcome(started_ns=1, finished_ns=2)
    attempt.task.record = replace(attempt.task.record, timestamp_ms=stamp)
    encoder = AnswerEncoder("w", FORMATS[name].encode_response)
    value = encoder.ok(attempt) if outcome == "OK" else encoder.unprocessed(attempt, Failure("E", ""), outcome)
    answer = decode_answer(value)
    assert answer.HasField("requested_at") is kept
    assert answer.requested_at.ToMilliseconds() == (stamp if kept else 0)


def test_a_response_without_an_outcome_is_unspecified() -> None:
    """So the answer of an old writer differs from every outcome that has a name."""
    assert decode_response(OldResponse(sequence=1).SerializeToString()).outcome == 0
    assert Response().outcome == 0
