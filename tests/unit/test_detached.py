"""Detached tasks: their commit metadata and marks, and the partitions whose tasks run in another process."""

from __future__ import annotations

import pytest

from worker.core.commit_metadata import EMPTY, CommitMetadata, Detached, decode, encode
from worker.core.detached import (
    ABSENT,
    ABSENT_SECONDS,
    MOST_MARKS,
    UNKNOWN,
    Absences,
    DetachedClaim,
    GroupView,
    Mark,
    MarkKind,
    Step,
    begin_with,
    client_id_of,
    holder_of,
    in_turn,
    lost,
    mark_group,
    next_step,
    read_mark,
    released_mark,
    settled_mark,
    token_of,
    view_of,
)
from worker.core.lease import Lease
from worker.core.model import Partition, Record
from worker.core.owned_partition import OwnedPartition

PLACE = Partition("requests", 0)
HOLDER, OTHER = "5f3a9b2c1", "5f3a9b2c2"
SETTLED = Mark(MarkKind.SETTLED, 1)
RELEASED = Mark(MarkKind.RELEASED, 1)


def owned_with(task: Detached, *, ordering: str = "unordered", offset: int = 5) -> OwnedPartition:
    """Return a partition whose lowest task is detached."""
    left = CommitMetadata(detached={offset: task})
    return OwnedPartition(PLACE, start_offset=offset, metadata=left, ordering=ordering)


def fetch(owned: OwnedPartition, *offsets: int, key: bytes | None = None) -> None:
    for offset in offsets:
        owned.admit(Record(PLACE, offset, key, b"x"))


def startable(owned: OwnedPartition) -> list[int]:
    return [task.offset for task in owned.take(10, 0.0, below=float("inf"))]


def recorded(owned: OwnedPartition) -> CommitMetadata:
    """Return the commit metadata that the next owner reads."""
    return decode(encode(owned.metadata(clean=True), owned.position), owned.position)


@pytest.mark.parametrize(
    ("client_id", "token"),
    [
        (client_id_of("host-0", "5f3a9b2c"), "5f3a9b2c"),
        ("host.example.com-0", ""),
        ("host-0", ""),
        ("host-0.5F3A9B2C", ""),
        ("", ""),
    ],
)
def test_only_a_process_that_understands_detached_tasks_has_a_token(client_id: str, token: str) -> None:
    assert token_of(client_id) == token


def test_a_mark_is_read_as_it_was_written() -> None:
    claim, task = DetachedClaim(Lease(PLACE), 7, 2, HOLDER), Detached(2, HOLDER)
    assert read_mark(task, settled_mark(claim)) == Mark(MarkKind.SETTLED, 2)
    assert read_mark(task, released_mark(claim, 1, 12.5)) == Mark(MarkKind.RELEASED, 1, 12.5)


def test_a_mark_of_an_earlier_version_has_no_pause() -> None:
    """It has the time of the next attempt instead, which would be a pause of decades."""
    claim = DetachedClaim(Lease(PLACE), 7, 2, HOLDER)
    assert read_mark(Detached(2, HOLDER), released_mark(claim, 1, 1_795_000_000.0)) == Mark(MarkKind.RELEASED, 1, 0.0)


def test_the_mark_of_another_holder_does_not_count() -> None:
    """A process may detach the same task twice, and a topic may be created again under the same name."""
    claim = DetachedClaim(Lease(PLACE), 7, 2, HOLDER)
    assert read_mark(Detached(2, OTHER), settled_mark(claim)) == ABSENT
    assert read_mark(Detached(2, HOLDER), None) == ABSENT
    assert read_mark(Detached(2, HOLDER), (8, "another tool")) == ABSENT


def test_a_holder_is_named_until_the_task_is_vacated_or_gone() -> None:
    claim = DetachedClaim(Lease(PLACE), 7, 2, HOLDER)

    def committed(**tasks: Detached) -> tuple[int, str]:
        return 7, encode(CommitMetadata(detached={int(at[1:]): task for at, task in tasks.items()}), 7)

    assert claim.is_named_by(committed(_7=Detached(2, HOLDER)))
    assert not claim.is_named_by(committed(_7=Detached(2, HOLDER, vacated=True)))
    assert not claim.is_named_by(committed(_7=Detached(3, OTHER)))
    assert not claim.is_named_by(committed(_8=Detached(2, HOLDER)))
    assert not claim.is_named_by((7, "of another tool"))
    assert not claim.is_named_by(None)


@pytest.mark.parametrize(
    ("vacated", "mark", "missing", "recorded_state", "step"),
    [
        (False, UNKNOWN, True, True, Step.WAIT),
        (True, UNKNOWN, True, True, Step.WAIT),
        (False, SETTLED, True, True, Step.SETTLE),
        (True, SETTLED, True, False, Step.SETTLE),
        (False, RELEASED, False, True, Step.TAKE_OVER),
        (False, ABSENT, False, True, Step.WAIT),
        (False, ABSENT, True, True, Step.VACATE),
        (True, ABSENT, True, False, Step.WAIT),
        (True, ABSENT, False, True, Step.TAKE_OVER),
    ],
)
def test_a_task_is_taken_over_only_if_released_or_after_the_vacating_commit(
    vacated: bool, mark: Mark, missing: bool, recorded_state: bool, step: Step
) -> None:
    task = Detached(1, HOLDER, vacated=vacated)
    assert next_step(task, mark, missing=missing, recorded=recorded_state) is step


def test_a_holder_is_missing_if_two_views_far_enough_apart_do_not_show_it() -> None:
    absences = Absences()
    absences.look(["00000001"], [HOLDER], 100.0)
    assert not absences.is_missing(HOLDER)
    absences.look(["00000001"], [HOLDER], 100.0 + ABSENT_SECONDS)
    assert absences.is_missing(HOLDER)
    absences.look([HOLDER[:8]], [HOLDER], 110.0)
    assert not absences.is_missing(HOLDER)
    absences.look([], [HOLDER], 120.0)
    assert not absences.is_missing(HOLDER)


def test_a_group_view_shows_which_members_have_request_partitions() -> None:
    state = Partition("state", 0)
    members = [("a-0.00000001", [PLACE]), ("b-0.00000002", [state]), ("c-0.00000003", [])]
    view = view_of(members, ["requests"])
    assert view == GroupView(frozenset({"00000001", "00000002", "00000003"}), frozenset({"00000001"}))
    assert view.understands_detached("00000001")
    assert not view.understands_detached("00000009")  # the view does not show the process itself
    assert not view.can_take_work("00000001", 4)  # the member without partitions has a long task
    assert view.can_take_work("00000001", 1)  # or there are more members than partitions
    assert view.can_take_work("00000002", 4)
    assert not view_of([*members, ("older-0", [])], ["requests"]).understands_detached("00000001")


@pytest.mark.parametrize(("ordering", "free"), [("partition", []), ("key", [7]), ("unordered", [6, 7])])
def test_only_the_ordering_group_of_a_detached_task_waits(ordering: str, free: list[int]) -> None:
    owned = owned_with(Detached(1, HOLDER), ordering=ordering)
    fetch(owned, 5, 6, key=b"a")
    fetch(owned, 7, key=b"b")
    assert startable(owned) == free
    for offset in free:
        owned.settle(offset)
    assert owned.position == 5
    assert recorded(owned).detached == {5: Detached(1, HOLDER)}
    owned.settle_detached(5)
    assert startable(owned) == [offset for offset in (6, 7) if offset not in free]


@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
def test_a_task_that_is_taken_over_starts_first_and_counts_its_attempts(ordering: str) -> None:
    owned = owned_with(Detached(2, HOLDER), ordering=ordering)
    fetch(owned, 5, 6, key=b"a")
    owned.vacate(5)
    assert recorded(owned).detached == {5: Detached(2, HOLDER, vacated=True)}
    owned.take_over(5, 2, 0.0)
    owned.request_starts(1, 0.0)
    owned.confirm((5, ""), 6, owned.starts.restarts, EMPTY)
    tasks = owned.take(1, 0.0, below=float("inf"))
    assert [(task.offset, task.attempt) for task in tasks] == [(5, 2)]
    assert recorded(owned).detached == {}
    assert recorded(owned).attempts == {5: 2}


def test_a_task_that_is_taken_over_starts_only_when_a_commit_has_recorded_it() -> None:
    """If its process crashes, the next owner has to count this attempt."""
    owned = owned_with(Detached(1, HOLDER))
    fetch(owned, 5)
    owned.starts.confirm(10, {})
    owned.take_over(5, 1, 0.0)
    owned.request_starts(1, 0.0)
    assert not owned.starts.may_start(5)
    assert not owned.take(1, 0.0, below=10)
    owned.confirm((5, ""), 10, {}, EMPTY)
    assert not owned.starts.may_start(5), "a commit that was under way before does not record it"
    owned.confirm((5, ""), 10, owned.starts.restarts, EMPTY)
    assert owned.starts.may_start(5)
    assert [task.offset for task in owned.take(1, 0.0, below=10)] == [5]


def test_a_task_that_is_settled_before_its_record_was_fetched_never_starts() -> None:
    """It starts neither in this process nor in the next owner."""
    owned = owned_with(Detached(1, HOLDER))
    owned.settle_detached(5)
    assert owned.position == 5
    assert recorded(owned).completed == ((5, 6),)
    fetch(owned, 5, 6)
    assert startable(owned) == [6]
    assert owned.position == 6


def test_the_position_never_passes_offsets_that_were_not_fetched() -> None:
    """There may be other records between two detached tasks."""
    left = CommitMetadata(detached={5: Detached(1, HOLDER), 9: Detached(1, OTHER)}, completed=((6, 7),))
    owned = OwnedPartition(PLACE, start_offset=5, metadata=left, ordering="unordered")
    fetch(owned, 5)
    owned.settle_detached(9)
    owned.settle_detached(5)
    assert owned.position == 6
    assert recorded(owned).completed == ((6, 7), (9, 10))


def test_a_detached_task_is_not_a_crash_suspect() -> None:
    """It cannot have crashed a process that did not run it. The tasks behind it do not wait for it either."""
    left = CommitMetadata(started_below=8, detached={5: Detached(1, HOLDER)})
    owned = OwnedPartition(PLACE, start_offset=5, metadata=left, ordering="unordered")
    fetch(owned, 5, 6, 7, 8)
    assert owned.starts.attempts == {6: 1}
    assert owned.has_suspect
    for offset in (6, 7):
        assert [task.offset for task in owned.take(1, 0.0, below=float("inf"))] == [offset]
        owned.settle(offset)
    assert not owned.has_suspect


def test_every_holder_has_a_separate_mark() -> None:
    """A frozen holder writes its mark late, and must not replace the mark of its successor."""
    groups = {mark_group("group", PLACE, 7, holder_of("0123abcd", number)) for number in (1, 2)}
    assert len(groups) == 2


@pytest.mark.parametrize("tasks", [1, MOST_MARKS, MOST_MARKS + 1, 40, 101])
def test_marks_of_many_tasks_are_read_in_turn(tasks: int) -> None:
    """Every mark is read. A round reads at most as many marks as the client keeps consumers."""
    rounds = [in_turn(range(tasks), number) for number in range(1_000, 1_000 + tasks)]
    assert {len(one) for one in rounds} == {min(tasks, MOST_MARKS)}
    assert {task for one in rounds[: 1 + tasks // 4] for task in one} == set(range(tasks))


@pytest.mark.parametrize(
    ("left", "first", "over", "missing"),
    [
        (CommitMetadata(completed=((9, 11),)), 8, ((9, 11),), []),
        (CommitMetadata(unanswered_from=5), 8, (), [(5, 8)]),
        (CommitMetadata(unanswered_from=5, detached={5: Detached(1, HOLDER)}), 5, ((6, 8),), [(6, 8)]),
        (
            CommitMetadata(unanswered_from=3, completed=((4, 6), (7, 8), (9, 10)), detached={6: Detached(1, HOLDER)}),
            6,
            ((7, 8), (9, 10)),
            [(3, 4)],
        ),
        (CommitMetadata(completed=((9, 10),), detached={8: Detached(1, HOLDER)}), 8, ((9, 10),), []),
    ],
)
def test_only_detached_tasks_are_read_again_under_at_most_once(
    left: CommitMetadata, first: int, over: tuple[tuple[int, int], ...], missing: list[tuple[int, int]]
) -> None:
    """The other requests that started below the committed offset are lost or answered."""
    assert decode(encode(left, 8), 8) == left
    assert begin_with(8, left) == (first, over)
    assert lost(8, left) == missing
