"""``context.transaction``: what the handler writes is there with the result, or not at all."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from tests.stores.support import TOPIC, answer, done, effects, prepare_effects, results, write
from worker.stores.port import RefusedError, StaleOffsetError, StoreUnavailableError

if TYPE_CHECKING:
    from tests.stores.conftest import Make


@pytest.fixture(autouse=True)
def _table(url: str) -> None:
    prepare_effects(url)


def test_what_the_handler_wrote_is_there_with_the_result(make: Make, url: str) -> None:
    transaction = make().begin(TOPIC, 0)
    write(transaction.handle, 0)
    write(transaction.handle, 1)
    assert effects(url) == []
    transaction.commit(answer(0))
    assert effects(url) == [0, 1]


def test_a_rollback_undoes_it(make: Make, url: str) -> None:
    """And the connection goes back clean."""
    store = make()
    transaction = store.begin(TOPIC, 0)
    write(transaction.handle, 0)
    transaction.rollback()
    done(store, 0)
    assert effects(url) == []
    assert results(store) == [0]


def test_a_zombie_leaves_no_effects(make: Make, url: str) -> None:
    zombie, successor = make(), make()
    late = zombie.begin(TOPIC, 0)
    _ = late.handle
    transaction = successor.begin(TOPIC, 0)
    write(transaction.handle, 2)
    transaction.commit(answer(0))
    write(late.handle, 1)
    with pytest.raises(StaleOffsetError):
        late.commit(answer(0))
    assert effects(url) == [2]


def test_the_handler_cannot_commit(make: Make, url: str) -> None:
    """Its writes would be there without the offset, and there again after the next attempt."""
    store = make()
    transaction = store.begin(TOPIC, 0)
    write(transaction.handle, 0)
    with pytest.raises(RefusedError, match="committed by the worker"):
        transaction.handle.commit()
    transaction.rollback()
    transaction = store.begin(TOPIC, 0)
    with pytest.raises(RefusedError, match="leave out"), transaction.handle.begin():
        write(transaction.handle, 0)
    transaction.rollback()
    assert effects(url) == []
    done(store, 0)


def test_the_handler_may_undo_its_own_writes(make: Make, url: str) -> None:
    """By a rollback, which ends what it wrote so far, and by savepoints, which SQLite's driver would commit."""
    store = make()
    transaction = store.begin(TOPIC, 0)
    write(transaction.handle, 0)
    transaction.handle.rollback()
    with transaction.handle.begin_nested():
        write(transaction.handle, 1)
    with transaction.handle.begin_nested() as savepoint:
        write(transaction.handle, 2)
        savepoint.rollback()
    assert effects(url) == []
    transaction.commit(answer(0))
    assert effects(url) == [1]

    transaction = store.begin(TOPIC, 1)
    with transaction.handle.begin_nested():
        write(transaction.handle, 3)
    transaction.rollback()
    assert effects(url) == [1]


def test_writing_past_sqlalchemy_is_undone_as_well(make: Make, url: str) -> None:
    """By the driver's own cursor."""
    store = make()
    transaction = store.begin(TOPIC, 0)
    transaction.handle.connection.cursor().execute("INSERT INTO effects VALUES (1, 1)")
    transaction.rollback()
    assert effects(url) == []
    done(store, 0)


def test_tables_too_are_made_in_the_transaction(make: Make) -> None:
    store = make()
    transaction = store.begin(TOPIC, 0)
    transaction.handle.exec_driver_sql("CREATE TABLE things (x INT)")
    transaction.rollback()
    transaction = store.begin(TOPIC, 0)
    assert not sa.inspect(transaction.handle).has_table("things")
    transaction.rollback()


def test_a_statement_of_the_handlers_that_fails_is_the_handlers(make: Make) -> None:
    """It sees SQLAlchemy's error and can deal with it."""
    transaction = make().begin(TOPIC, 0)
    with pytest.raises(sa.exc.DBAPIError), transaction.handle.begin_nested():
        transaction.handle.exec_driver_sql("INSERT INTO no_such_table VALUES (1)")
    write(transaction.handle, 0)
    transaction.commit(answer(0))


def test_the_lock_begins_with_the_first_statement(make: Make) -> None:
    """A handler that works for an hour holds nobody up before it writes, even if it took the connection early."""
    working, other = make(), make(limit=0.3)
    transaction = working.begin(TOPIC, 5)
    handle = transaction.handle
    done(other, 0)
    write(handle, 5)
    transaction.commit(answer(5))


def test_a_result_that_the_database_does_not_take_is_a_refusal(make: Make) -> None:
    """An attempt that failed, with one line; no time to be wasted on trying the store again."""
    store = make()
    transaction = store.begin(TOPIC, 0)
    with pytest.raises(RefusedError) as caught:
        transaction.commit(answer(0)._replace(cpu_seconds=None))  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    assert "null" in str(caught.value).lower()
    done(store, 0)


class TestSqlite:
    """One writer at a time."""

    @pytest.fixture
    def url(self, sqlite_url: str) -> str:
        return sqlite_url

    def test_a_handler_that_writes_holds_up_the_others_for_a_bounded_time(self, make: Make) -> None:
        working, other = make(), make(limit=0.3)
        transaction = working.begin(TOPIC, 5)
        write(transaction.handle, 5)

        begun = time.monotonic()
        with pytest.raises(StoreUnavailableError, match="database is locked"):
            done(other, 0)
        assert 0.25 < time.monotonic() - begun < 3

        assert make(limit=0.3).positions([TOPIC]) == {}  # not even a process that starts now
        transaction.rollback()
        done(other, 0)

    def test_readers_never_wait(self, make: Make) -> None:
        with make().take() as connection:
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # full

    def test_reading_before_writing_is_safe(self, make: Make, url: str) -> None:
        """A transaction that read an older state could never write again."""
        store, other = make(), make()
        transaction = store.begin(TOPIC, 5)
        handle = transaction.handle
        handle.exec_driver_sql("SELECT * FROM effects").all()
        with pytest.raises(StoreUnavailableError):
            make(limit=0.1).skip(TOPIC, 0)
        write(handle, 5)
        transaction.commit(answer(5))
        other.skip(TOPIC, 6)
        assert effects(url) == [5]


class TestPostgres:
    @pytest.fixture
    def url(self, postgres_url: str) -> str:
        return postgres_url

    def test_an_error_the_handler_swallowed_is_a_refusal(self, make: Make, url: str) -> None:
        """The server has given the transaction up; committing would silently undo what the handler wrote."""
        store = make()
        transaction = store.begin(TOPIC, 0)
        write(transaction.handle, 0)
        with pytest.raises(sa.exc.DBAPIError):
            transaction.handle.exec_driver_sql("INSERT INTO no_such_table VALUES (1)")
        with pytest.raises(RefusedError, match="transaction is aborted"):
            transaction.commit(answer(0))
        assert effects(url) == []
        done(store, 0)

    def test_a_constraint_looked_at_on_commit_is_a_refusal(self, make: Make) -> None:
        store = make()
        transaction = store.begin(TOPIC, 0)
        transaction.handle.exec_driver_sql("CREATE TABLE c (x INT UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        transaction.handle.exec_driver_sql("INSERT INTO c VALUES (1), (1)")
        with pytest.raises(RefusedError, match="duplicate key"):
            transaction.commit(answer(0))
        assert store.positions([TOPIC]) == {}

    def test_a_long_statement_of_the_handlers_is_let_run(self, make: Make, url: str) -> None:
        """The limits are for our own statements. They are back for the commit, and for the next transaction."""
        store = make(limit=0.5)
        transaction = store.begin(TOPIC, 0)
        transaction.handle.exec_driver_sql("SELECT pg_sleep(1.2)")
        write(transaction.handle, 0)
        time.sleep(1.8)  # idle in the transaction: our own would be ended after 1.5 s
        transaction.commit(answer(0))
        assert effects(url) == [0]
        begun = time.monotonic()
        with store.take() as connection, pytest.raises(StoreUnavailableError):
            connection.exec_driver_sql("SELECT pg_sleep(5)")
        assert time.monotonic() - begun < 2
