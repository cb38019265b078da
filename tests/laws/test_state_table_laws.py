"""Laws of the fold of the state topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from worker.core.task_state import CancelRequest, Origin, TaskState
from worker.state import records
from worker.state.table import Kind, StateTable

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

Pair = tuple[bytes | None, bytes | None]

origins = st.builds(Origin, st.just("r"), st.integers(0, 1), st.integers(0, 2))
states = st.builds(
    TaskState,
    origins,
    st.sampled_from(["a-0", "b-0"]),
    epoch=st.integers(1, 4),
    started_ns=st.integers(0, 3),
    updated_ns=st.integers(0, 9),
    checkpoint=st.binary(max_size=2),
)


def written(state: TaskState) -> Pair:
    return records.state_key(state.origin), records.encode_state(state)


pairs = st.one_of(
    states.map(written),
    origins.map(lambda origin: (records.state_key(origin), None)),
    origins.map(lambda origin: (records.cancel_key(origin), records.encode_cancel(CancelRequest(origin)))),
    origins.map(lambda origin: (records.cancel_key(origin), None)),
    st.tuples(st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=9)),
)


def folded(log: Iterable[Pair]) -> StateTable:
    table = StateTable()
    for key, value in log:
        table.apply(key, value)
    return table


@given(st.lists(pairs))
def test_a_request_has_the_latest_record_of_its_latest_start(log: list[Pair]) -> None:
    """Only records after the last tombstone count. Late records of earlier starts change nothing."""
    expected: dict[Origin, TaskState] = {}
    for key, value in log:
        record = records.decode(key, value)
        if isinstance(record, TaskState):
            known = expected.get(record.origin)
            if known is None or (record.epoch, record.started_ns) >= (known.epoch, known.started_ns):
                expected[record.origin] = record
        elif isinstance(record, records.Removed) and not record.cancel:
            expected.pop(record.origin, None)
    assert folded(log).states == expected


@given(st.lists(states))
def test_the_order_of_starts_does_not_matter(log: list[TaskState]) -> None:
    """The valid start is the same, in whatever order the records of several starts arrive."""
    forward = folded([written(state) for state in log])
    backward = folded([written(state) for state in reversed(log)])
    assert {o: s.start for o, s in forward.states.items()} == {o: s.start for o, s in backward.states.items()}


@given(st.lists(pairs))
def test_a_stale_record_is_reported(log: list[Pair]) -> None:
    """Exactly the states that were not applied are stale."""
    table = StateTable()
    for key, value in log:
        change = table.apply(key, value)
        record = records.decode(key, value)
        assert (change is None) == (record is None)
        if isinstance(record, TaskState):
            taken = table.states[record.origin] == record
            assert change is not None
            assert change.kind is (Kind.STATE if taken else Kind.STALE)


@given(st.lists(pairs), st.randoms(use_true_random=False))
def test_compaction_changes_nothing_once_the_owner_has_written_again(log: list[Pair], random: Random) -> None:
    """If the last record of each key is not stale, the last records alone give the same table."""
    table = folded(log)
    repaired = log + [written(state) for state in table.states.values()]
    kept = list(dict(repaired).items())
    random.shuffle(kept)
    compacted = folded(kept)
    assert (compacted.states, compacted.cancels) == (table.states, table.cancels)


@given(st.lists(pairs))
def test_a_cancel_request_stays_until_its_tombstone(log: list[Pair]) -> None:
    last: dict[Origin, bool] = {}
    for key, value in log:
        record = records.decode(key, value)
        if isinstance(record, CancelRequest):
            last[record.origin] = True
        elif isinstance(record, records.Removed) and record.cancel:
            last[record.origin] = False
    assert set(folded(log).cancels) == {origin for origin, wanted in last.items() if wanted}
