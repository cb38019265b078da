"""The SQL store as an implementation of the port, on both databases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.stores.support import TOPIC, answer, done, results
from worker.core.model import Partition
from worker.stores.port import OffsetStore, StaleOffsetError, StoreError
from worker.stores.sql import PAGE

if TYPE_CHECKING:
    from tests.stores.conftest import Make

OTHER = Partition("requests", 1)


def test_the_sql_store_is_an_offset_store(make: Make) -> None:
    store: OffsetStore = make()
    assert isinstance(store, OffsetStore)


def test_a_partition_that_the_store_has_never_seen_has_no_position(make: Make) -> None:
    store = make()
    assert store.positions([TOPIC, OTHER]) == {}
    assert store.positions([]) == {}
    assert list(store.answers(TOPIC, 0, 10)) == []


def test_a_commit_moves_the_position_past_the_request_and_stores_the_answer(make: Make) -> None:
    store = make()
    store.begin(TOPIC, 7).commit(answer(7))

    again = make()
    assert again.positions([TOPIC, OTHER]) == {TOPIC: 8}
    assert list(again.answers(TOPIC, 0, 100)) == [answer(7)]


def test_an_answer_is_read_as_it_was_stored(make: Make) -> None:
    """The answers have binary results and keys, an empty result, no key, and the largest numbers."""
    given = [
        answer(0, b"", None),
        answer(1, bytes(range(256)), b"\x00\xff"),
        answer(2, b"x" * 1_000_000)._replace(sequence=-(2**31), attempt=2**31 - 1, cpu_seconds=1e-9),
        answer(2**62)._replace(started_ns=2**62, sequence=2**31 - 1),
    ]
    store = make()
    for each in given:
        store.begin(TOPIC, each.offset).commit(each)

    assert list(store.answers(TOPIC, 0, 2**63 - 1)) == given


def test_a_rollback_stores_nothing(make: Make) -> None:
    store = make()
    transaction = store.begin(TOPIC, 0)
    transaction.rollback()
    transaction.rollback()

    assert store.positions([TOPIC]) == {}
    assert results(store) == []


def test_groups_topics_and_partitions_are_separate(make: Make) -> None:
    one, two = make("one"), make("two")
    one.begin(TOPIC, 3).commit(answer(3))
    two.begin(TOPIC, 3).commit(answer(3, b"two"))
    two.begin(OTHER, 5).commit(answer(5))
    two.skip(Partition("elsewhere", 0), 9)

    assert one.positions([TOPIC, OTHER]) == {TOPIC: 4}
    assert two.positions([TOPIC, OTHER, Partition("elsewhere", 0)]) == {
        TOPIC: 4,
        OTHER: 6,
        Partition("elsewhere", 0): 10,
    }
    assert two.positions([OTHER]) == {OTHER: 6}
    assert [each.result for each in two.answers(TOPIC, 0, 10)] == [b"two"]


def test_offsets_may_have_gaps(make: Make) -> None:
    store = make()
    done(store, 0, 4, 9)
    assert results(store) == [0, 4, 9]
    assert store.positions([TOPIC]) == {TOPIC: 10}


def test_a_completed_request_cannot_begin_again(make: Make) -> None:
    """The store refuses it before the handler has run for an hour, not after."""
    store = make()
    done(store, 4)
    for offset in (0, 4):
        with pytest.raises(StaleOffsetError, match=rf"^requests\[0\] offset {offset} is done already"):
            store.begin(TOPIC, offset)
    store.begin(TOPIC, 5).rollback()
    store.begin(OTHER, 0).rollback()


@pytest.mark.parametrize("first", [0, 6])
def test_a_zombie_that_commits_late_is_refused(make: Make, first: int) -> None:
    """This includes the first record of a partition, for which there is no row to update yet."""
    zombie, successor = make(), make()
    late = zombie.begin(TOPIC, first)
    successor.begin(TOPIC, first).commit(answer(first, b"successor"))
    done(successor, first + 1)

    with pytest.raises(StaleOffsetError):
        late.commit(answer(first, b"zombie"))

    assert [each.result for each in successor.answers(TOPIC, 0, 100)] == [b"successor", b"done"]
    assert successor.positions([TOPIC]) == {TOPIC: first + 2}


def test_a_zombie_whose_request_was_skipped_is_refused(make: Make) -> None:
    """The successor skipped the request without a result, so only the offset shows that the zombie is late."""
    zombie, successor = make(), make()
    late = zombie.begin(TOPIC, 0)
    successor.skip(TOPIC, 0)
    with pytest.raises(StaleOffsetError):
        late.commit(answer(0))
    assert results(successor) == []


def test_an_existing_result_is_not_replaced(make: Make) -> None:
    """Even if somebody has reset the offsets by hand. A process that finds a result continues behind it."""
    store = make()
    done(store, 0)
    with store.take() as connection:
        connection.exec_driver_sql("DELETE FROM worker_offsets")
        connection.commit()

    with pytest.raises(StaleOffsetError):
        store.begin(TOPIC, 0).commit(answer(0, b"again"))
    assert store.positions([TOPIC]) == {}  # all of it was rolled back
    done(store, 1)
    assert [each.result for each in store.answers(TOPIC, 0, 9)] == [b"done", b"done"]


def test_a_skip_moves_the_position_without_a_result(make: Make) -> None:
    store = make()
    store.skip(TOPIC, 0)
    done(store, 1)
    store.skip(TOPIC, 2)
    store.skip(TOPIC, 2)  # the reply was lost, so the worker calls again

    assert results(store) == [1]
    assert store.positions([TOPIC]) == {TOPIC: 3}


def test_a_skip_never_moves_the_position_back(make: Make) -> None:
    store = make()
    done(store, 5)
    store.skip(TOPIC, 2)
    assert store.positions([TOPIC]) == {TOPIC: 6}


def test_answers_of_a_range_are_returned_in_order(make: Make) -> None:
    store, count = make(), 2 * PAGE + 7
    done(store, *range(count))

    assert results(store) == list(range(count))
    for start, stop in [(0, PAGE), (3, 2 * PAGE + 3), (PAGE - 1, PAGE + 1), (5, 5), (9, 2), (count - 1, count + 50)]:
        found = [each.offset for each in store.answers(TOPIC, start, stop)]
        assert found == list(range(start, min(stop, count)))


def test_reads_do_not_wait_for_an_open_transaction(make: Make) -> None:
    """The poll thread reads while a handler's transaction is open. Half-read answers do not block a commit."""
    store, count = make(), PAGE + 2
    done(store, *range(count))
    half = store.answers(TOPIC, 0, count)
    assert next(half).offset == 0
    transaction = store.begin(TOPIC, count)
    transaction.handle.exec_driver_sql("CREATE TABLE things (x INT)")

    assert store.positions([TOPIC]) == {TOPIC: count}
    assert len(list(half)) == count - 1
    transaction.commit(answer(count))
    assert store.positions([TOPIC]) == {TOPIC: count + 1}


def test_a_commit_refuses_the_answer_to_another_request(make: Make) -> None:
    transaction = make().begin(TOPIC, 1)
    with pytest.raises(ValueError, match="offset 2 in the transaction of 1"):
        transaction.commit(answer(2))
    transaction.rollback()


def test_an_ended_transaction_cannot_be_used(make: Make) -> None:
    store = make()
    transaction = store.begin(TOPIC, 0)
    transaction.commit(answer(0))
    transaction.rollback()
    with pytest.raises(StoreError, match="has ended"):
        _ = transaction.handle
    with pytest.raises(StoreError, match="has ended"):
        transaction.commit(answer(0))
    assert results(store) == [0]
