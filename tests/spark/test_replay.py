"""The replay of dead letters: each is sent once and unchanged, and not more often than allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pipeline.errors import JobError
from pipeline.jobs import replay
from pipeline.messages.dead_letters import replayed_headers
from tests.spark.support.requests import Found, produce
from tests.spark.support.site import JobSite
from worker.codec import Request

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.kafka_broker import Broker


@pytest.fixture
def site(broker: Broker, tmp_path: Path) -> JobSite:
    return JobSite(broker, tmp_path)


def dead_letter(
    site: JobSite, sequence: int, error: str = "TimeoutError", job: str = "j", origin: str | None = None, **more: bytes
) -> Any:
    """Return a dead letter as the worker writes it."""
    headers = [("job", job.encode()), ("trace", b"\xff"), *((name.replace("_", "-"), v) for name, v in more.items())]
    added = {"topic": origin or site.requests, "partition": "1", "offset": str(sequence)}
    headers += [(f"x-origin-{name}", text.encode()) for name, text in added.items()]
    headers += [("x-attempts", b"3"), ("x-error-type", error.encode()), ("x-error-message", b"too slow")]
    value = Request(sequence=sequence, payload=f"p{sequence}").SerializeToString()
    return f"{job}/{sequence:010d}".encode(), value, headers


def run(spark: SparkSession, site: JobSite, **options: Any) -> replay.Replayed:
    return replay.replay(spark, site.replay(**options))


def test_each_selected_dead_letter_is_replayed_once(spark: SparkSession, site: JobSite) -> None:
    dead_letters = [dead_letter(site, n, "TimeoutError" if n % 3 else "Reject") for n in range(300)]
    others = [dead_letter(site, 7, job="other"), (b"x", b"\xff", [])]
    produce(site.bootstrap, site.dead_letters, [*dead_letters, *others])
    where = "error_type = 'TimeoutError' and attempt = 3"

    said = run(spark, site, where=where, dry_run=True)
    assert (said.selected, said.errors) == (200, {"TimeoutError": 200})
    assert site.sent() == []

    assert run(spark, site, where=where, chunk=30).selected == 200
    found = site.sent()
    assert_requests(found, [n for n in range(300) if n % 3])

    again = run(spark, site, where=where, chunk=7)
    assert (again.selected, again.replayed) == (0, 200)
    assert len(site.sent()) == 200

    # The other dead letters, although their offsets lie between those of the replayed ones.
    assert run(spark, site).selected == 100
    assert_requests(site.sent(), list(range(300)))


def assert_requests(found: list[Found], sequences: list[int]) -> None:
    assert sorted(int((one.key or b"")[-10:]) for one in found) == sequences
    for one in found:
        sequence = int((one.key or b"")[-10:])
        assert one.value == Request(sequence=sequence, payload=f"p{sequence}").SerializeToString()
        assert one.headers == {"job": b"j", "trace": b"\xff", "replay": b"1"}


def test_dead_letters_that_cannot_or_must_not_be_replayed_are_counted(spark: SparkSession, site: JobSite) -> None:
    dead_letters = [
        dead_letter(site, 0),
        dead_letter(site, 1, replay=b"2"),
        dead_letter(site, 2, replay=b"1"),
        dead_letter(site, 3, x_value_dropped=b"too large"),
        dead_letter(site, 4, origin="elsewhere"),
        dead_letter(site, 5, replay=b"nonsense"),
    ]
    produce(site.bootstrap, site.dead_letters, dead_letters)
    said = run(spark, site, max_replays=2)
    assert said[1:6] == (3, 0, 1, 1, 1)
    replays = {int((one.key or b"")[-10:]): one.headers["replay"] for one in site.sent()}
    assert replays == {0: b"1", 2: b"2", 5: b"1"}


def test_the_error_of_a_wrong_condition_is_one_line(spark: SparkSession, site: JobSite) -> None:
    for where in ("no_such_column = 1", "error_type ==== 1", "error_type"):
        with pytest.raises(JobError, match=r"--where '.*' cannot be used: ") as caught:
            replay.replay(spark, site.replay(where=where))
        assert "\n" not in str(caught.value)


def test_a_replayed_request_keeps_its_original_headers() -> None:
    headers = [{"key": "job", "value": b"j"}, {"key": "x-attempts", "value": b"1"}, {"key": "replay", "value": b"1"}]
    assert replayed_headers(headers, 1) == [("job", b"j"), ("replay", b"2")]
    assert replayed_headers(None, 0) == [("replay", b"1")]
