"""What the start log records for the next owner before the first start, and after records were deleted."""

from __future__ import annotations

from worker.core.commit_metadata import CommitMetadata, encode
from worker.core.model import Partition, Record
from worker.core.owned_partition import OwnedPartition
from worker.core.start_log import StartLog

FORMER, THIS = "aaaaaaaa", "bbbbbbbb"


def test_a_start_of_this_process_is_recorded_with_its_token() -> None:
    """This also applies while a crash of the previous owner is not charged to a task yet."""
    starts = StartLog(CommitMetadata(started_below=6, started_by=FORMER, attempts={5: 1}, waiting=frozenset({5})))
    assert not starts.admit(5)
    assert starts.record(5, clean=False, process=THIS).started_by == FORMER, "nothing has started here"
    starts.request(6, {5})
    starts.confirm(6, starts.restarts)
    starts.started(5)
    assert starts.record(5, clean=False, process=THIS).started_by == THIS


def test_attempts_of_deleted_records_are_forgotten() -> None:
    left = CommitMetadata(attempts={5: 1, 7: 2}, waiting=frozenset({5, 7}), errors={5: "E", 7: "F"})
    owned = OwnedPartition(Partition("r", 0), start_offset=5, metadata=left)
    for offset in (6, 7):
        owned.admit(Record(owned.partition, offset, None, b"x"))
    owned.settle(6)
    recorded = owned.metadata(clean=True)
    assert (owned.position, recorded.attempts, recorded.errors) == (7, {7: 2}, {7: "F"})
    owned.settle(7)
    assert encode(owned.metadata(clean=True), owned.position) == ""
