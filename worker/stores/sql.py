"""The included offset store, ``worker.stores.sql:store``: PostgreSQL or SQLite, through SQLAlchemy."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from worker.core.model import Partition
from worker.stores import sql_engine, sql_url
from worker.stores.port import StaleOffsetError, StoredAnswer, StoreError, StoreUnavailableError
from worker.stores.sql_failures import one_line, translated_errors
from worker.stores.sql_tables import METADATA, OFFSETS, RESULTS, equal, keep, move

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

LIMIT_SECONDS = 10.0  # for one of our statements, or one wait for a lock
PAGE = 50  # results read at a time; each fits into a Kafka record, so these fit into memory


def store(group: str) -> SqlStore:
    """Return the store for ``WORKER_STORE_URL``, with its tables. Raise StoreError or StoreUnavailableError."""
    return SqlStore(sql_url.from_environment(), group)


class SqlStore:
    """Implements ``OffsetStore``. ``limit`` is in seconds, for one statement or one wait for a lock."""

    def __init__(self, url: str, group: str, limit: float = LIMIT_SECONDS) -> None:
        parsed = sql_url.parse(url)
        self._group = group
        try:
            self._engine, self._database = sql_engine.connect(parsed, limit)
        except ModuleNotFoundError as error:
            raise StoreError(f"{sql_url.URL} needs {error.name}: pip install 'kafka-task-worker[store]'") from None
        except (sa.exc.SQLAlchemyError, TypeError) as error:
            raise StoreError(f"{sql_url.URL} cannot be used: {one_line(error)}") from None
        self._reader = self._engine.execution_options(**self._database.reading)
        self._move, self._keep = move(self._database), keep(self._database)
        try:
            self._make_tables()
        except StoreError as error:
            self.close()
            where = parsed.render_as_string(hide_password=True)
            raise type(error)(f"{sql_url.URL}={where} cannot be used: {error}") from error

    def _make_tables(self) -> None:
        with translated_errors():
            with self._reader.connect() as connection:
                if all(sa.inspect(connection).has_table(table.name) for table in METADATA.sorted_tables):
                    return  # the user may not create tables
            with self._engine.begin() as connection:
                self._database.lock_schema(connection)
                METADATA.create_all(connection)

    def positions(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """Return the offset to continue from for each of these partitions, without those never seen."""
        wanted, columns = set(partitions), OFFSETS.c
        query = sa.select(columns.topic, columns.partition_number, columns.next_offset).where(
            columns.group_id == self._group, columns.topic.in_({partition.topic for partition in wanted})
        )
        with translated_errors(), self._reader.connect() as connection:
            found = {Partition(topic, number): offset for topic, number, offset in connection.execute(query)}
        return {partition: offset for partition, offset in found.items() if partition in wanted}

    def begin(self, partition: Partition, offset: int) -> SqlTransaction:
        """Return a transaction for the request at this offset. It takes a connection when it needs one."""
        query = sa.select(OFFSETS.c.next_offset).where(*equal(OFFSETS, self._key(partition)))
        with translated_errors(), self._reader.connect() as connection:
            position = connection.scalar(query)
        if position is not None and position > offset:
            raise _stale(partition, offset)
        return SqlTransaction(self, partition, offset)

    def skip(self, partition: Partition, offset: int) -> None:
        """Move past a request that ended without a result. Do nothing if the store is already beyond."""
        with translated_errors(), self._engine.begin() as connection:
            self.move(connection, partition, offset)

    def answers(self, partition: Partition, start: int, stop: int) -> Iterator[StoredAnswer]:
        """Yield the results of requests from ``start`` up to but not including ``stop``, by offset."""
        columns = RESULTS.c
        while start < stop:
            query = (
                sa.select(*list(columns)[3:])
                .where(*equal(RESULTS, self._key(partition)))
                .where(columns.record_offset >= start, columns.record_offset < stop)
                .order_by(columns.record_offset)
                .limit(PAGE)
            )
            with translated_errors(), self._reader.connect() as connection:
                page = [StoredAnswer(*row) for row in connection.execute(query)]
            yield from page  # no connection is held during this
            start = page[-1].offset + 1 if len(page) == PAGE else stop

    def close(self) -> None:
        """Close all connections."""
        with contextlib.suppress(Exception):
            self._engine.dispose()

    # ---------------------------------------------------------------- for the transaction

    def take(self) -> sa.Connection:
        """Return a working connection."""
        with translated_errors():
            return self._engine.connect()

    def lend(self, connection: sa.Connection) -> None:
        """Lend a connection to the handler. Its statements have no time limit, and it must not commit."""
        self._database.lend(connection.execution_options(**{sql_engine.LENT: True}))

    def take_back(self, connection: sa.Connection) -> None:
        """Take a connection back from the handler."""
        self._database.take_back(connection.execution_options(**{sql_engine.LENT: False}))

    def move(self, connection: sa.Connection, partition: Partition, offset: int) -> bool:
        """Move the partition's row past this offset. Return False if it is already there or beyond.

        This is the fence. The second process waits for the row and then reads what the first has written.
        """
        row = {**self._key(partition), "next_offset": offset + 1}
        return connection.execute(self._move, row).rowcount == 1

    def keep(self, connection: sa.Connection, partition: Partition, answer: StoredAnswer) -> bool:
        """Write a result. Return False if there already is one."""
        values = answer._asdict()
        row = {"record_offset": values.pop("offset"), "record_key": values.pop("key"), **values}
        return connection.execute(self._keep, {**self._key(partition), **row}).rowcount == 1

    def _key(self, partition: Partition) -> dict[str, Any]:
        return {"group_id": self._group, "topic": partition.topic, "partition_number": partition.number}


class SqlTransaction:
    """Implements ``StoreTransaction``; ``handle`` is a ``sqlalchemy.Connection``, taken on first use."""

    def __init__(self, store: SqlStore, partition: Partition, offset: int) -> None:
        self._store = store
        self._partition = partition
        self._offset = offset
        self._connection: sa.Connection | None = None
        self._ended = False

    @property
    def handle(self) -> sa.Connection:
        """The connection. Its transaction and the locks begin with its first statement."""
        self._check_open()
        if self._connection is None:
            self._connection = self._store.take()
            self._store.lend(self._connection)
        return self._connection

    def commit(self, answer: StoredAnswer) -> None:
        """Commit the result, the offset and the handler's writes, all or nothing."""
        self._check_open()
        if answer.offset != self._offset:
            raise ValueError(f"the answer to offset {answer.offset} in the transaction of {self._offset}")
        try:
            with translated_errors():
                done = self._write(answer)
        finally:
            self.rollback()
        if not done:
            raise _stale(self._partition, self._offset)

    def _check_open(self) -> None:
        if self._ended:
            raise StoreError("context.transaction has ended: use it only until the handler returns")

    def _write(self, answer: StoredAnswer) -> bool:
        store = self._store
        connection = self._connection
        if connection is None:
            # The handler wrote nothing. Hours may have passed, but a connection fresh from the pool is known to work.
            connection = self._connection = store.take()
        elif connection.invalidated:
            raise StoreUnavailableError("the connection broke, and the handler's writes on it are lost")
        else:
            store.take_back(connection)
        moved = store.move(connection, self._partition, self._offset)
        if moved and store.keep(connection, self._partition, answer):
            connection.commit()
            return True
        return False

    def rollback(self) -> None:
        """Undo the changes and return the connection. Does nothing after the end."""
        self._ended = True
        connection, self._connection = self._connection, None
        if connection is not None:
            # After a commit that was refused to the handler, SQLAlchemy believes that the transaction has ended. The
            # driver knows better.
            with contextlib.suppress(Exception):
                if not connection.invalidated:
                    connection.connection.rollback()
            with contextlib.suppress(Exception):
                connection.close()


def _stale(partition: Partition, offset: int) -> StaleOffsetError:
    return StaleOffsetError(f"{partition} offset {offset} is done already: the offset store is beyond it")
