"""PostgreSQL goes away and comes back: every call ends in time, with an error that says so, and then all goes on."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.stores.support import TOPIC, answer, done, effects, prepare_effects, results, write
from worker.stores.port import StaleOffsetError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.stores.conftest import Make
    from tests.stores.postgres import Postgres
    from worker.stores.sql import SqlStore

LIMIT = 1.0
CONNECT = 2
BOUND = LIMIT + CONNECT + 2
CALLS: dict[str, Callable[[SqlStore], object]] = {
    "positions": lambda store: store.positions([TOPIC]),
    "begin": lambda store: store.begin(TOPIC, 5),
    "skip": lambda store: store.skip(TOPIC, 5),
    "answers": lambda store: list(store.answers(TOPIC, 0, 9)),
}


@pytest.fixture
def url(postgres_url: str) -> str:
    return f"{postgres_url}&connect_timeout={CONNECT}"


@pytest.fixture
def server(postgres: Postgres) -> Iterator[Postgres]:
    """Runs again afterwards, whatever the test did."""
    yield postgres
    if not postgres.running():
        postgres.start()


def unavailable(call: Callable[[], object]) -> str:
    """What it says, if it says it in time."""
    begun = time.monotonic()
    with pytest.raises(StoreUnavailableError) as caught:
        call()
    assert time.monotonic() - begun < BOUND
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)
    return str(caught.value)


def test_stopped_and_started(make: Make, server: Postgres) -> None:
    store = make(limit=LIMIT)
    done(store, 0)
    transaction = store.begin(TOPIC, 1)
    server.stop()
    for call in CALLS.values():
        assert "refused" in unavailable(lambda call=call: call(store))  # type: ignore[misc]
    unavailable(lambda: transaction.commit(answer(1)))

    server.start()
    done(store, 1, 2)
    assert results(store) == [0, 1, 2]


def test_a_handler_that_wrote_nothing_does_not_notice(make: Make, server: Postgres) -> None:
    """It worked for an hour; the server was restarted meanwhile. Its result is not thrown away."""
    store = make(limit=LIMIT)
    transaction = store.begin(TOPIC, 0)
    server.stop()
    server.start()
    transaction.commit(answer(0))
    assert results(store) == [0]


def test_what_a_handler_wrote_before_is_lost_as_a_whole(make: Make, url: str, server: Postgres) -> None:
    prepare_effects(url)
    store = make(limit=LIMIT)
    transaction = store.begin(TOPIC, 0)
    write(transaction.handle, 0)
    server.stop()
    server.start()
    unavailable(lambda: transaction.commit(answer(0)))
    assert effects(url) == []
    done(store, 0)


def test_a_handler_sees_the_outage_as_one(make: Make, url: str, server: Postgres) -> None:
    """Not as another error, which would use up an attempt. Going on after it is no way out."""
    prepare_effects(url)
    store = make(limit=LIMIT)
    transaction = store.begin(TOPIC, 0)
    write(transaction.handle, 0)
    server.stop()
    unavailable(lambda: write(transaction.handle, 1))
    server.start()
    with pytest.raises(Exception, match="rolled back"):
        write(transaction.handle, 2)
    unavailable(lambda: transaction.commit(answer(0)))
    assert effects(url) == []
    done(store, 0)


@pytest.mark.parametrize("name", CALLS)
def test_frozen(make: Make, server: Postgres, name: str) -> None:
    """The server's machine is there and answers nothing: its sockets stay open, its own time-outs do not run."""
    store = make(limit=LIMIT)
    done(store, 0)
    frozen = server.processes()
    try:
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        unavailable(lambda: CALLS[name](store))
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    assert store.positions([TOPIC]) == {TOPIC: 1}


def test_frozen_in_a_commit(make: Make, url: str, server: Postgres) -> None:
    """It may have been applied or not: the next ``begin`` knows."""
    prepare_effects(url)
    store = make(limit=LIMIT)
    transaction = store.begin(TOPIC, 0)
    write(transaction.handle, 0)
    frozen = server.processes()
    try:
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        unavailable(lambda: transaction.commit(answer(0)))
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    with contextlib.suppress(StaleOffsetError):
        done(store, 0)
    assert results(store) == [0]


def test_a_process_stopped_in_its_commit_holds_the_others_up_for_a_bounded_time(make: Make) -> None:
    """It keeps the partition's row locked until the server ends its idle transaction: after three limits."""
    zombie, successor = make(limit=LIMIT), make(limit=LIMIT)
    stopped = zombie.take()
    assert zombie.move(stopped, TOPIC, 0)

    begun = time.monotonic()
    said = unavailable(lambda: done(successor, 0))
    assert "timeout" in said or "no answer from the server" in said  # server and client have the same limit
    while not results(successor):
        assert time.monotonic() - begun < 5 * BOUND
        with contextlib.suppress(StoreUnavailableError):
            done(successor, 0)
    assert time.monotonic() - begun > 2 * LIMIT
    with pytest.raises(StoreUnavailableError):
        stopped.commit()
    stopped.close()
    assert results(successor) == [0]


def test_a_lock_that_is_not_to_be_had_is_not_the_handlers_fault(make: Make, url: str) -> None:
    """Somebody else has it: to be tried again, without using up an attempt."""
    prepare_effects(url)
    store = make(limit=LIMIT)
    transaction = store.begin(TOPIC, 0)
    transaction.handle.exec_driver_sql("LOCK TABLE effects")
    other = make(limit=LIMIT).begin(TOPIC, 1)
    unavailable(lambda: write(other.handle, 1))
    other.rollback()
    transaction.rollback()
