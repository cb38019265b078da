"""Requests that fail in many ways, each with a good neighbour behind it, all for one replica."""

from __future__ import annotations

import json
import math
import random
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.kafka.support.messages import message, request
from tests.kafka.support.site import Site
from tests.kafka.support.topics import Record, Sent, Submission, reading, task

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kafka.support.replica import Replica
    from tests.kafka_broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]

ATTEMPTS = 2
HEADERS = (("trace", b"\x00\xff\xfe"), ("twice", b"1"), ("twice", None), ("", b""))
LARGE = "ä" * 450_000  # of two bytes each
LARGEST = 1_048_588 - 200  # bytes: the default maximum of a topic, without the rest of the record


class Poison(NamedTuple):
    """A value and its expected end. ``error`` is the type in answer and dead letter. With None, the outcome is OK."""

    name: str
    value: bytes | None
    error: str | None = None
    attempts: int = 1
    result: bytes = b""
    large: bool = (
        False  # the record has the maximum size of its topic, and is too large with more headers or in an answer
    )


def doing(name: str, error: str | None = None, attempts: int = 1, result: bytes = b"", **arguments: object) -> Poison:
    """Return a case with a well-formed request for which the handler does something unusual."""
    return Poison(name, request(7, json.dumps(arguments)), error, attempts, result)


def raising(kind: str, attempts: int = ATTEMPTS, text: str = "as told") -> Poison:
    """Return a case with a request whose handler raises."""
    return doing(f"raises {kind}", kind, attempts, do="fail", kind=kind, text=text)


MALFORMED = [
    Poison("null", None, "MalformedRequest", 0),
    Poison("empty", b"", "MalformedRequest", 0),
    Poison("truncated", request(7, "a text that is cut")[:-3], "MalformedRequest", 0),
    Poison("random bytes", b"\x0f" + random.Random(1).randbytes(300), "MalformedRequest", 0),
    Poison("largest garbage", b"\xff" * LARGEST, "MalformedRequest", 0, large=True),
    Poison("no UTF-8", b"\x08\x07\x12\x02\xff\xfe", "MalformedRequest", 0),
]
RESULTS = [
    Poison("large payload", request(7, LARGE), result=LARGE.encode()),
    Poison("largest payload", request(7, "a" * LARGEST), "OversizedResult", large=True),
    doing("5 MB result", "OversizedResult", do="big", size=5_000_000),
    doing("result of no kind", "Reject", do="number"),
    doing("text that cannot be encoded", "Reject", do="surrogate"),
    doing("prints a lot", result=b"printed", do="chatter", megabytes=5),
]
FAILURES = [
    raising("ValueError"),
    raising("StubbornError"),
    raising("LowError"),
    raising("KeyboardInterrupt"),
    raising("GeneratorExit"),
    raising("StopIteration"),
    raising("MemoryError"),
    raising("Reject", attempts=1),
    doing("message that cannot be encoded", "ValueError", ATTEMPTS, do="fail", text="\udcff"),
    doing("long message", "ValueError", ATTEMPTS, do="fail", text="x" + "ü" * 100_000),
    doing("sys.exit(0)", "SystemExit", ATTEMPTS, do="leave", code=0),
    doing("sys.exit(3)", "SystemExit", ATTEMPTS, do="leave", code=3),
    doing("retry forever", "Retry", ATTEMPTS, do="retry_until", attempt=99, after=0.1),
    doing("retry some day", "Retry", ATTEMPTS, do="retry_until", attempt=99, after="soon"),
    doing("retry at no time", "Retry", ATTEMPTS, do="retry_until", attempt=99, after=math.nan),
    doing("retry before", "Retry", ATTEMPTS, do="retry_until", attempt=99, after=-1),
    doing("second attempt", None, 2, b"succeeded on attempt 2", do="fail_until", attempt=2),
    doing("retry once", None, 2, b"succeeded on attempt 2", do="retry_until", attempt=2, after=0.1),
]
CHILDREN = [
    doing("fork, child returns", result=b"the parent", do="fork", child="return"),
    doing("fork, child exits", result=b"the parent", do="fork", child="exit"),
    doing("fork, child executes", result=b"the parent", do="fork", child="exec"),
]
CASES = MALFORMED + RESULTS + FAILURES + CHILDREN


class Aftermath(NamedTuple):
    """The results of a run over all cases."""

    site: Site
    poisons: dict[str, Sent]
    neighbours: dict[str, Sent]
    dead_letters: dict[tuple[int, int], list[Record]]  # by the partition and offset in their headers
    trouble: str  # what failed in the run as a whole, so that each case is still checked


def submissions() -> Iterator[Submission]:
    """Yield each poison request and then its neighbour, both in the same partition."""
    for number, case in enumerate(CASES):
        yield Submission(case.value, case.name.encode(), number % 2, HEADERS)
        yield task(1000 + number, "good", partition=number % 2)


@pytest.fixture(scope="module")
def after(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aftermath]:
    site = Site(broker, tmp_path_factory.mktemp("poison"), WORKER_PROCESSES="2", WORKER_MAX_ATTEMPTS=str(ATTEMPTS))
    try:
        replica = site.start().wait_ready()
        pids = replica.pids()
        sent = {one.submission: one for one in site.submit(submissions())}
        trouble = trouble_of(site, replica, pids)
        site.answers.read_all()
        in_order = [sent[one] for one in submissions()]
        names = [case.name for case in CASES]
        poisons, neighbours = (dict(zip(names, in_order[at::2], strict=True)) for at in (0, 1))
        yield Aftermath(site, poisons, neighbours, read_dead_letters(site), trouble)
    finally:
        site.close()


def trouble_of(site: Site, replica: Replica, pids: list[int]) -> str:
    """Wait until the run has finished. Return what failed, or an empty text."""
    try:
        site.wait_answered(seconds=40)
        assert replica.pids() == pids, f"a process did not survive\n{replica.tail()}"
        site.finish()
    except AssertionError as error:
        return str(error)
    return ""


def read_dead_letters(site: Site) -> dict[tuple[int, int], list[Record]]:
    dead_letters: dict[tuple[int, int], list[Record]] = {}
    with reading(site.bootstrap, site.dead, site.answer_partitions) as reader:
        for dead_letter in reader.read_all():
            headers = dict(dead_letter.headers)
            assert headers["x-origin-topic"] == site.requests.encode()
            place = int(headers["x-origin-partition"] or 0), int(headers["x-origin-offset"] or 0)
            dead_letters.setdefault(place, []).append(dead_letter)
    return dead_letters


def test_every_request_is_answered_once_and_committed_by_the_same_processes(after: Aftermath) -> None:
    assert after.trouble == ""


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_each_request_ends_as_the_contract_says(after: Aftermath, case: Poison) -> None:
    """It has exactly one answer, with the right outcome. Its neighbour succeeds."""
    sent = after.poisons[case.name]
    answer = after.site.answer_to(sent)
    response = answer.response
    assert (answer.outcome, response.isprocessed) == (("DEAD_LETTERED", False) if case.error else ("OK", True))
    assert (response.error.type, response.attempt, response.result) == (case.error or "", case.attempts, case.result)
    assert answer.key == case.name.encode()
    assert response.sequence == (0 if case in MALFORMED else 7)
    starts = after.site.journal.starts()
    assert starts[sent.partition, sent.offset] == case.attempts
    neighbour = after.neighbours[case.name]
    assert after.site.answer_to(neighbour).response.result == b"good"
    assert starts[neighbour.partition, neighbour.offset] == 1


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_dead_letter_has_the_original_request_and_the_reason(after: Aftermath, case: Poison) -> None:
    """The request is copied byte for byte, with its headers first. A successful request has no dead letter."""
    sent = after.poisons[case.name]
    dead_letters = after.dead_letters.get((sent.partition, sent.offset), [])
    if case.error is None:
        assert dead_letters == []
        return
    (dead_letter,) = dead_letters
    assert dead_letter.key == case.name.encode()
    assert dead_letter.value == (None if case.large else case.value)
    assert dead_letter.headers[: len(HEADERS)] == HEADERS
    added = dict(dead_letter.headers[len(HEADERS) :])
    assert {name: added[name] for name in ("x-attempts", "x-error-type")} == {
        "x-attempts": str(case.attempts).encode(),
        "x-error-type": case.error.encode(),
    }
    assert added["x-error-message"], "no reason"
    assert added["x-error-message"].decode(), "not whole"
    assert ("x-value-dropped" in added) == case.large


def test_an_answer_has_the_message_and_the_traceback_of_its_error(after: Aftermath) -> None:
    """The traceback has the lines of the user's code, without those of the worker."""
    error = after.site.answer_to(after.poisons["raises ValueError"]).response.error
    assert error.message == "as told"
    assert "handlers/work.py" in error.traceback
    assert "raise ERRORS[kind](text)" in error.traceback
    assert "handlers/runner.py" not in error.traceback
    assert after.site.answer_to(after.poisons["raises Reject"]).response.error.message == "as told"


def test_protobuf_parses_all_cases_except_the_malformed_ones() -> None:
    """This checks the cases of this file, except the null and the empty value."""
    parse = message("Request").FromString
    for case in CASES:
        if case in MALFORMED[2:]:
            with pytest.raises(Exception, match=r"."):
                parse(case.value)
        elif case not in MALFORMED:
            assert parse(case.value).sequence == 7
