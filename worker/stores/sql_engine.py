"""The two databases that the included store supports, and their differences."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.dialects import postgresql, sqlite

from worker.stores.port import RefusedError
from worker.stores.sql_failures import passing, raise_if_passing

if TYPE_CHECKING:
    import sqlite3

LENT = "worker_lent"  # execution option: the handler is using the connection
READS = "worker_reads"  # execution option: single statements that read, each its own transaction
CONNECT_SECONDS = 5
_SET_LOCAL = "SET LOCAL statement_timeout = {statement}; SET LOCAL idle_in_transaction_session_timeout = {idle}"
_LOCK_KEY = 0x776F726B  # of the advisory lock under which tables are created; any number that no other program uses


class Postgres:
    """READ COMMITTED is enough: a statement waits for a row that another transaction changed, then reads it again."""

    insert = staticmethod(postgresql.insert)
    reading: dict[str, Any] = {"isolation_level": "AUTOCOMMIT", READS: True}  # noqa: RUF012 - never changed

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._milliseconds = milliseconds = int(limit * 1000)
        self._session = {
            "lock_timeout": milliseconds,
            "statement_timeout": milliseconds,
            # A process that was stopped in the middle of a commit must not keep the partition's row locked.
            "idle_in_transaction_session_timeout": 3 * milliseconds,
            # The server releases the locks of a lost machine after a minute instead of two hours.
            "tcp_keepalives_idle": 30,
            "tcp_keepalives_interval": 10,
            "tcp_keepalives_count": 3,
        }

    def connect_arguments(self, url: sa.URL) -> dict[str, Any]:
        """Return the settings that the URL does not contain."""
        options = [f"-c {name}={value}" for name, value in self._session.items()]
        given = url.query.get("options", ())
        options += [given] if isinstance(given, str) else given  # the last one wins
        wanted = {
            "connect_timeout": CONNECT_SECONDS,
            "application_name": "worker",
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": int(self._limit * 1000),
        }
        return {name: value for name, value in wanted.items() if name not in url.query} | {"options": " ".join(options)}

    def listen(self, engine: sa.Engine) -> None:
        """Set up connections with time limits. A handler's statements have none."""
        from worker.stores.sql_limited import LimitedConnection  # noqa: PLC0415 - psycopg is not needed for SQLite

        @event.listens_for(engine, "do_connect")
        def _connect(_dialect: Any, _record: Any, arguments: Any, parameters: Any) -> Any:
            connection = LimitedConnection.connect(*arguments, **parameters)
            connection.limit = self._limit
            return connection

        @event.listens_for(engine, "begin")
        def _begin(connection: sa.Connection) -> None:
            if connection.get_execution_options().get(LENT):
                # Only now is there a transaction that ends SET LOCAL. Behind a pooler, no setting may outlive it.
                connection.exec_driver_sql(_SET_LOCAL.format(statement=0, idle=0))

        @event.listens_for(engine, "checkin")
        def _checkin(connection: Any, _record: Any) -> None:
            if connection is not None:
                connection.limit = self._limit

    def lend(self, connection: sa.Connection) -> None:
        """Lend the connection to the handler, whose statements have no time limit."""
        connection.connection.dbapi_connection.limit = None  # type: ignore[union-attr]

    def take_back(self, connection: sa.Connection) -> None:
        """Take the connection back from the handler. Time limits apply again."""
        connection.connection.dbapi_connection.limit = self._limit  # type: ignore[union-attr]
        if connection.in_transaction():
            connection.exec_driver_sql(_SET_LOCAL.format(statement=self._milliseconds, idle=3 * self._milliseconds))

    def lock_schema(self, connection: sa.Connection) -> None:
        """Let one process at a time create tables, because IF NOT EXISTS fails when two do it at once."""
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})


class Sqlite:
    """SQLite allows one writer for the whole file, so the lock is taken late, with the first statement."""

    insert = staticmethod(sqlite.insert)
    reading: dict[str, Any] = {READS: True}  # noqa: RUF012 - never changed

    def __init__(self, limit: float) -> None:
        self._limit = limit

    def connect_arguments(self, url: sa.URL) -> dict[str, Any]:
        """Return the settings that the URL does not contain."""
        return {} if "timeout" in url.query else {"timeout": self._limit}

    def listen(self, engine: sa.Engine) -> None:
        """Begin transactions explicitly: the driver begins them late, and not at all before a savepoint."""

        @event.listens_for(engine, "connect")
        def _connect(connection: sqlite3.Connection, _record: Any) -> None:
            self._use_wal(connection)

        @event.listens_for(engine, "begin")
        def _begin(connection: sa.Connection) -> None:
            if not connection.get_execution_options().get(READS):
                # Do not use the deferred kind: if it reads first and writes later, it fails at once if another has
                # written in between.
                connection.exec_driver_sql("BEGIN IMMEDIATE")

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        """Switch to WAL, so that reading continues during a write. The switch itself does not wait for locks."""
        end = time.monotonic() + self._limit
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except connection.OperationalError as error:
                if not passing(error) or time.monotonic() > end:
                    raise
                time.sleep(0.02)
            else:
                return

    def lend(self, connection: sa.Connection) -> None:
        """Nothing to do."""

    def take_back(self, connection: sa.Connection) -> None:
        """Nothing to do."""

    def lock_schema(self, connection: sa.Connection) -> None:
        """Nothing to do: the transaction has the only lock."""


def connect(url: sa.URL, limit: float) -> tuple[sa.Engine, Postgres | Sqlite]:
    """Return an engine that connects on first use. One statement may take ``limit`` seconds."""
    database = Sqlite(limit) if url.get_backend_name() == "sqlite" else Postgres(limit)
    # One for each thread, and one for a reader that is still open.
    engine = sa.create_engine(
        url,
        connect_args=database.connect_arguments(url),
        pool_size=2,
        max_overflow=1,
        pool_timeout=limit,
        pool_pre_ping=True,
    )
    event.listen(engine, "handle_error", raise_if_passing)
    event.listen(engine, "commit", _ours_to_commit)
    database.listen(engine)
    return engine, database


def _ours_to_commit(connection: sa.Connection) -> None:
    if connection.get_execution_options().get(LENT):
        raise RefusedError(
            "context.transaction is committed by the worker, with the offset: leave out commit() and begin()"
        )
