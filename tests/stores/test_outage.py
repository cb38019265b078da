"""PostgreSQL stops and starts again: every call fails in time with a clear error, and later calls succeed."""

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
    """Yield the server. Start it again after the test if the test has stopped it."""
    yield postgres
    if not postgres.running():
        postgres.start()


def unavailable(call: Callable[[], object]) -> str:
    """Return the text of the call's error, which must come in time."""
    begun = time.monotonic()
    with pytest.raises(StoreUnavailableError) as caught:
        call()
    assert time.monotonic() - begun < BOUND
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)
    return str(caught.value)


def test_calls_fail_while_the_server_is_stopped_and_succeed_after_its_start(make: Make, server: Postgres) -> None:
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


def test_a_handler_that_wrote_nothing_is_not_affected_by_a_restart(make: Make, server: Postgres) -> None:
    """The server may restart while a handler works for an hour. The store still accepts the handler's result."""
    store = make(limit=LIMIT)
    transaction = store.begin(TOPIC, 0)
    server.stop()
    server.start()
    transaction.commit(answer(0))
    assert results(store) == [0]


def test_a_restart_undoes_all_writes_of_a_running_handler(make: Make, url: str, server: Postgres) -> None:
    prepare_effects(url)
    store = make(limit=LIMIT)
    transaction = store.begin(TOPIC, 0)
    write(transaction.handle, 0)
    server.stop()
    server.start()
    unavailable(lambda: transaction.commit(answer(0)))
    assert effects(url) == []
    done(store, 0)


def test_a_handlers_statement_raises_unavailable_during_an_outage(make: Make, url: str, server: Postgres) -> None:
    """Another error would use up an attempt. A handler that continues after the error cannot commit."""
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
def test_every_call_fails_in_time_if_the_server_is_frozen(make: Make, server: Postgres, name: str) -> None:
    """The server's machine does not answer. Its sockets stay open, and its own time-outs do not run."""
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


def test_a_commit_fails_in_time_if_the_server_is_frozen(make: Make, url: str, server: Postgres) -> None:
    """The commit may have been applied or not. The next ``begin`` finds out."""
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


def test_a_process_stopped_in_its_commit_blocks_others_for_a_bounded_time(make: Make) -> None:
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


def test_a_statement_that_waits_too_long_for_a_lock_raises_unavailable(make: Make, url: str) -> None:
    """Another transaction has the lock. The request is tried again, and no attempt is used up."""
    prepare_effects(url)
    store = make(limit=LIMIT)
    transaction = store.begin(TOPIC, 0)
    transaction.handle.exec_driver_sql("LOCK TABLE effects")
    other = make(limit=LIMIT).begin(TOPIC, 1)
    unavailable(lambda: write(other.handle, 1))
    other.rollback()
    transaction.rollback()
