"""``context.transaction``: the handler's writes are committed together with the result, or not at all."""

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


def test_the_handlers_writes_are_committed_together_with_the_result(make: Make, url: str) -> None:
    transaction = make().begin(TOPIC, 0)
    write(transaction.handle, 0)
    write(transaction.handle, 1)
    assert effects(url) == []
    transaction.commit(answer(0))
    assert effects(url) == [0, 1]


def test_a_rollback_undoes_the_handlers_writes(make: Make, url: str) -> None:
    """The next transaction on the connection does not commit them either."""
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
    """Otherwise its writes would be committed without the offset, and the next attempt would commit them again."""
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
    """A rollback undoes all its writes so far. A savepoint undoes some. SQLite's driver would commit savepoints."""
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


def test_a_rollback_also_undoes_writes_that_bypass_sqlalchemy(make: Make, url: str) -> None:
    """The handler writes with the driver's own cursor."""
    store = make()
    transaction = store.begin(TOPIC, 0)
    transaction.handle.connection.cursor().execute("INSERT INTO effects VALUES (1, 1)")
    transaction.rollback()
    assert effects(url) == []
    done(store, 0)


def test_a_rollback_also_undoes_the_creation_of_a_table(make: Make) -> None:
    store = make()
    transaction = store.begin(TOPIC, 0)
    transaction.handle.exec_driver_sql("CREATE TABLE things (x INT)")
    transaction.rollback()
    transaction = store.begin(TOPIC, 0)
    assert not sa.inspect(transaction.handle).has_table("things")
    transaction.rollback()


def test_the_handler_can_catch_the_error_of_a_failed_statement(make: Make) -> None:
    """It gets SQLAlchemy's error, and can continue after it."""
    transaction = make().begin(TOPIC, 0)
    with pytest.raises(sa.exc.DBAPIError), transaction.handle.begin_nested():
        transaction.handle.exec_driver_sql("INSERT INTO no_such_table VALUES (1)")
    write(transaction.handle, 0)
    transaction.commit(answer(0))


def test_the_first_statement_of_the_handler_takes_the_lock(make: Make) -> None:
    """A handler that works for an hour blocks no other process before it writes, even with an early connection."""
    working, other = make(), make(limit=0.3)
    transaction = working.begin(TOPIC, 5)
    handle = transaction.handle
    done(other, 0)
    write(handle, 5)
    transaction.commit(answer(5))


def test_a_result_that_the_database_does_not_accept_is_refused(make: Make) -> None:
    """It is a failed attempt, with a one-line error. The worker does not spend time on calling the store again."""
    store = make()
    transaction = store.begin(TOPIC, 0)
    with pytest.raises(RefusedError) as caught:
        transaction.commit(answer(0)._replace(cpu_seconds=None))  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    assert "null" in str(caught.value).lower()
    done(store, 0)


class TestSqlite:
    """SQLite, which allows one writer at a time."""

    @pytest.fixture
    def url(self, sqlite_url: str) -> str:
        return sqlite_url

    def test_a_handler_that_writes_blocks_other_writers_for_a_bounded_time(self, make: Make) -> None:
        working, other = make(), make(limit=0.3)
        transaction = working.begin(TOPIC, 5)
        write(transaction.handle, 5)

        begun = time.monotonic()
        with pytest.raises(StoreUnavailableError, match="database is locked"):
            done(other, 0)
        assert 0.25 < time.monotonic() - begun < 3

        assert make(limit=0.3).positions([TOPIC]) == {}  # a process that starts now is not blocked
        transaction.rollback()
        done(other, 0)

    def test_a_commit_does_not_wait_for_a_reader(self, make: Make, url: str) -> None:
        store, engine = make(limit=0.3), sa.create_engine(url)
        with engine.connect() as reader:
            reader.exec_driver_sql("BEGIN")
            assert reader.exec_driver_sql("SELECT number FROM effects").all() == []
            transaction = store.begin(TOPIC, 0)
            write(transaction.handle, 0)
            transaction.commit(answer(0))
            assert reader.exec_driver_sql("SELECT number FROM effects").all() == []
        engine.dispose()
        assert effects(url) == [0]

    def test_a_commit_reaches_the_disk(self, make: Make) -> None:
        with make().take() as connection:
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # full

    def test_a_handler_can_write_after_it_has_read(self, make: Make, url: str) -> None:
        """The read takes the write lock. If another process wrote after the read, the handler could not write."""
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

    def test_a_commit_after_an_error_that_the_handler_swallowed_is_refused(self, make: Make, url: str) -> None:
        """The server has aborted the transaction. A commit would silently undo the handler's writes."""
        store = make()
        transaction = store.begin(TOPIC, 0)
        write(transaction.handle, 0)
        with pytest.raises(sa.exc.DBAPIError):
            transaction.handle.exec_driver_sql("INSERT INTO no_such_table VALUES (1)")
        with pytest.raises(RefusedError, match="transaction is aborted"):
            transaction.commit(answer(0))
        assert effects(url) == []
        done(store, 0)

    def test_a_commit_that_violates_a_deferred_constraint_is_refused(self, make: Make) -> None:
        store = make()
        transaction = store.begin(TOPIC, 0)
        transaction.handle.exec_driver_sql("CREATE TABLE c (x INT UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        transaction.handle.exec_driver_sql("INSERT INTO c VALUES (1), (1)")
        with pytest.raises(RefusedError, match="duplicate key"):
            transaction.commit(answer(0))
        assert store.positions([TOPIC]) == {}

    def test_a_long_statement_of_the_handler_is_not_interrupted(self, make: Make, url: str) -> None:
        """The limits are for the store's own statements. They apply again to the commit and to the next transaction."""
        store = make(limit=0.5)
        transaction = store.begin(TOPIC, 0)
        transaction.handle.exec_driver_sql("SELECT pg_sleep(1.2)")
        write(transaction.handle, 0)
        time.sleep(1.8)  # idle in the transaction: the store's own would be ended after 1.5 s
        transaction.commit(answer(0))
        assert effects(url) == [0]
        begun = time.monotonic()
        with store.take() as connection, pytest.raises(StoreUnavailableError):
            connection.exec_driver_sql("SELECT pg_sleep(5)")
        assert time.monotonic() - begun < 2
