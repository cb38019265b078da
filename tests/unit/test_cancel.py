"""``worker cancel``, over topics in memory with a worker that reacts to cancel requests."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple

import click
import pytest
from click.testing import CliRunner

from tests.unit.fake_topics import ANSWERS, REQUESTS, STATES, FakeTopics
from worker.cli import cancel
from worker.cli.app import cli
from worker.cli.cancel_reach import SETTLE, Cancellation, Reach
from worker.codec import Response
from worker.core.commit_metadata import CommitMetadata, encode
from worker.core.model import Partition
from worker.core.task_state import CancelRequest, Origin, TaskState
from worker.errors import BrokerError, SettingsError
from worker.kafka.ports import Position
from worker.state.records import Removed, cancel_key, decode, encode_state, partition_of, state_key
from worker.state.table import Change, Kind

if TYPE_CHECKING:
    from worker.core.model import Headers
    from worker.kafka.sender import Outgoing

NEVER_STARTED, STOPPING, OPEN, ANSWERED = (
    "cancelled (never started)",
    "asked to stop",
    "not reached yet",
    "answered already",
)


class Done(NamedTuple):
    code: int
    lines: list[str]
    err: str


class Site:
    """Topics, and a worker that reaches the requests in ``waits`` and ``runs``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.topics = FakeTopics()
        self.topics.on_write = self._react
        self.waits: set[Origin] = set()
        self.runs: set[Origin] = set()
        clock = itertools.count(0.0, 0.1)
        monkeypatch.setattr(cancel, "Access", lambda: self.topics)
        monkeypatch.setattr(cancel, "time", SimpleNamespace(monotonic=lambda: next(clock), time_ns=lambda: 1))

    def request(self, key: str = "", number: int = 0, headers: Headers = ()) -> Origin:
        offset = self.topics.add(REQUESTS, number, key.encode() or None, b"\x08\x01", headers)
        return Origin(REQUESTS, number, offset)

    def answer(self, origin: Origin, outcome: str, attempt: int = 1) -> None:
        response = Response(outcome=outcome, attempt=attempt)
        response.origin.topic, response.origin.partition, response.origin.offset = origin
        self.topics.add(ANSWERS, 0, b"k", response.SerializeToString())

    def commit(self, offset: int, number: int = 0, metadata: CommitMetadata | None = None) -> None:
        text = "" if metadata is None else encode(metadata, offset)
        self.topics.committed[Partition(REQUESTS, number)] = Position(offset, text)

    def _react(self, record: Outgoing) -> None:
        request = decode(record.key, record.value)
        assert isinstance(request, CancelRequest)
        assert record.partition == partition_of(request.origin, 2)
        if request.origin in self.waits:
            self.answer(request.origin, "CANCELLED", attempt=0)
        if request.origin in self.waits | self.runs:
            self.topics.add(STATES, record.partition, record.key, None)

    @property
    def written(self) -> list[Origin]:
        """Return the origins for which the command has written a cancel request."""
        records = [record for place, log in self.topics.logs.items() if place.topic == STATES for record in log]
        found = [decode(record.key, record.value) for record in records]
        return [each.origin for each in found if isinstance(each, CancelRequest)]

    def __call__(self, *arguments: object) -> Done:
        result = CliRunner().invoke(
            cli, ["cancel", *map(str, arguments)], standalone_mode=False, catch_exceptions=False
        )
        return Done(result.return_value, result.stdout.splitlines(), result.stderr)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(monkeypatch)


# ---------------------------------------------------------------- which requests are reached


def test_a_cancelled_request_that_waits_never_starts(site: Site) -> None:
    origin = site.request()
    site.waits.add(origin)

    done = site(origin)

    assert (done.code, done.lines) == (0, [f"requests/0/0  {NEVER_STARTED}"])
    assert site.written == [origin]


def test_a_running_request_is_reported_before_it_has_ended(site: Site) -> None:
    origin = site.request()
    site.runs.add(origin)
    assert site(origin) == Done(0, [f"requests/0/0  {STOPPING}"], "1 request: 1 asked to stop\n")


def test_without_a_worker_no_request_is_reached_before_the_time_out(site: Site) -> None:
    """The cancel request stays in the state topic, and the command says so."""
    origin = site.request()

    done = site(origin, "--timeout", "5s")

    assert (done.code, done.lines) == (1, [f"requests/0/0  {OPEN}"])
    assert "as soon as a worker fetches them" in done.err


def test_a_tombstone_before_the_cancel_request_does_not_count(site: Site) -> None:
    """Only a later tombstone shows that a worker has reached the request."""
    origin = site.request()
    site.topics.add(STATES, partition_of(origin, 2), cancel_key(origin), None)
    assert site(origin, "--timeout", "5s").lines == [f"requests/0/0  {OPEN}"]


def test_an_answer_that_is_not_committed_yet_counts(site: Site) -> None:
    """The commit follows the answer, so the ack topic is read from the timestamp of the request on."""
    first, second = site.request(), site.request()
    site.answer(first, "FAILED")
    site.answer(second, "CANCELLED", attempt=2)

    done = site(first, second)

    assert (done.code, done.lines) == (0, [f"requests/0/0  {ANSWERED}", "requests/0/1  cancelled"])


def test_requests_that_the_group_has_committed_are_not_cancelled(site: Site) -> None:
    """They are below the committed offset, or completed above it. The requests in between are reached."""
    origins = [site.request() for _ in range(5)]
    site.commit(2, metadata=CommitMetadata(completed=((3, 4),)))
    site.waits.update(origins)

    done = site(*origins)

    assert done.code == 0
    assert [line.partition("  ")[2] for line in done.lines] == [
        ANSWERED,
        ANSWERED,
        NEVER_STARTED,
        ANSWERED,
        NEVER_STARTED,
    ]
    assert site.written == [origins[2], origins[4]]


def test_a_committed_request_may_still_run_under_at_most_once(site: Site) -> None:
    """The commit comes before the start, and its metadata name the requests without an answer."""
    origin = site.request()
    site.commit(1, metadata=CommitMetadata(unanswered_from=0))
    site.runs.add(origin)

    assert site(origin).lines == [f"requests/0/0  {STOPPING}"]


def test_a_long_task_whose_partition_has_moved_is_reached(site: Site) -> None:
    """Its offset may be committed already, but the state topic has the task."""
    origin = site.request("moved")
    site.commit(1)
    state = TaskState(origin, "replica-0-0", 1, 1, 1, key=b"moved")
    site.topics.add(STATES, partition_of(origin, 2), state_key(origin), encode_state(state))
    site.runs.add(origin)

    assert site(origin).lines == [f"requests/0/0  {STOPPING}"]
    assert site("--key", "moved").lines == [f"requests/0/0  moved  {STOPPING}"]


def test_a_second_cancel_reports_that_the_request_is_answered(site: Site) -> None:
    """Another call writes no second cancel request."""
    origin = site.request()
    site.waits.add(origin)
    site(origin)
    site.commit(1)

    assert site(origin) == Done(0, [f"requests/0/0  {ANSWERED}"], "1 request: 1 answered already\n")
    assert site.written == [origin]


# ---------------------------------------------------------------- by key and job


def test_every_unanswered_request_with_the_key_is_cancelled(site: Site) -> None:
    """The key may have several requests. Further arguments are keys too."""
    one, _, again = site.request("a"), site.request("b"), site.request("a", number=1)
    site.waits.update([one, again])

    assert site("--key", "a").lines == [f"requests/0/0  a  {NEVER_STARTED}", f"requests/1/0  a  {NEVER_STARTED}"]
    assert len(site("--key", "a", "b", "--timeout", "1s").lines) == 3


def test_a_key_whose_request_has_an_answer_is_a_success(site: Site) -> None:
    site.request("a")
    site.commit(1)

    done = site("--key", "a")

    assert (done.code, done.lines) == (0, [f"requests/0/0  a  {ANSWERED}"])
    assert site.written == []


def test_a_key_that_no_request_has_is_a_failure(site: Site) -> None:
    origin = site.request("a")
    site.waits.add(origin)

    done = site("--key", "a", "--key", "misspelt")

    assert (done.code, done.lines) == (1, [f"requests/0/0  a  {NEVER_STARTED}"])
    assert "misspelt: no request has this key or job" in done.err


def test_the_requests_of_a_job_are_found_by_their_header_or_key(site: Site) -> None:
    """The pipeline writes the header. ``worker submit --job`` writes only keys."""
    mine = [site.request("x", headers=(("job", b"tuesday"),)), site.request("tuesday/0000000001")]
    site.request("tuesday/0000000002", headers=(("job", b"monday"),))
    site.request("tuesdays/0000000001")
    site.waits.update(mine)

    done = site("--all-of", "tuesday")

    assert done.code == 0
    assert site.written == mine


# ---------------------------------------------------------------- wrong usage


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "either by ORIGIN, or with --key, or with --all-of"),
        (["requests/0/0", "--all-of", "j"], "either by ORIGIN, or with --key, or with --all-of"),
        (["--key", "k", "--all-of", "j"], "either by ORIGIN, or with --key, or with --all-of"),
        (["requests/0"], "'requests/0' must be topic/partition/offset, such as requests/0/17"),
        (["requests/0/x"], "must be topic/partition/offset"),
        (["requests/0/7"], "no such request: the partition ends before offset 1"),
        (["requests/9/0"], "KAFKA_REQUEST_TOPIC=requests has no such partition"),
        (["others/0/0"], "KAFKA_REQUEST_TOPIC=requests has no such partition"),
    ],
)
def test_wrong_usage_ends_in_a_line(site: Site, arguments: list[str], message: str) -> None:
    """No cancel request is written."""
    site.request()
    with pytest.raises(click.UsageError, match=message):
        site(*arguments)
    assert site.written == []


def test_an_id_of_the_client_is_accepted(site: Site) -> None:
    origin = site.request()
    site.waits.add(origin)
    assert site("requests~0~0~1800000000000").lines == [f"requests/0/0  {NEVER_STARTED}"]


def test_without_a_state_topic_one_line_says_what_to_set(site: Site) -> None:
    site.topics.settings.state_topic = ""
    with pytest.raises(SettingsError, match="KAFKA_STATE_TOPIC is not set"):
        site("requests/0/0")


def test_a_missing_permission_to_write_is_named(site: Site) -> None:
    site.topics.write_failure = "TOPIC_AUTHORIZATION_FAILED: Topic authorization failed"
    with pytest.raises(BrokerError, match=r"^no permission to WRITE topic 'states' \(KAFKA_STATE_TOPIC\): grant it"):
        site(site.request())


def test_a_record_that_was_not_written_is_reported(site: Site) -> None:
    site.topics.write_failure = "_MSG_TIMED_OUT: Local: Message timed out"
    with pytest.raises(BrokerError, match=r"^writing to states \(KAFKA_STATE_TOPIC\) failed: _MSG_TIMED_OUT"):
        site(site.request())


# ---------------------------------------------------------------- the order of events


ORIGIN = Origin("requests", 0, 0)
REMOVED = Change(Kind.REACHED, ORIGIN)


def test_the_tombstone_alone_does_not_decide_the_result() -> None:
    """The command may read the answer shortly after the tombstone."""
    cancellation = Cancellation([ORIGIN], ())
    cancellation.change(REMOVED, 10.0)
    cancellation.answers_read(10.0 + SETTLE / 2)
    cancellation.answer(ORIGIN, "CANCELLED", 0)
    assert cancellation.reach[ORIGIN] is Reach.NEVER_STARTED


def test_a_reached_request_waits_until_the_answers_are_read() -> None:
    cancellation = Cancellation([ORIGIN], ())
    cancellation.change(REMOVED, 10.0)
    cancellation.answers_read(10.0)
    assert cancellation.open == [ORIGIN]

    cancellation.answers_read(10.0 + 2 * SETTLE)
    assert cancellation.reach[ORIGIN] is Reach.STOPPING


def test_a_request_that_was_reached_before_the_time_out_counts() -> None:
    cancellation = Cancellation([ORIGIN, Origin("requests", 0, 1)], ())
    cancellation.change(REMOVED, 10.0)
    cancellation.close()
    assert list(cancellation.reach.values()) == [Reach.STOPPING, Reach.OPEN]


def test_answers_and_tombstones_of_other_requests_change_nothing() -> None:
    cancellation = Cancellation([ORIGIN], ())
    other = Origin("requests", 1, 0)
    assert decode(cancel_key(other), None) == Removed(other, cancel=True)
    cancellation.change(Change(Kind.REACHED, other), 1.0)
    cancellation.answer(other, "OK", 1)
    cancellation.close()
    assert cancellation.reach == {ORIGIN: Reach.OPEN}
