"""The two tables of the included store, and the statements that write to them.

Users read and prune these tables, so no name needs quotes in SQL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from worker.stores.sql_engine import Postgres, Sqlite

METADATA = sa.MetaData()


def _keys() -> list[sa.Column[Any]]:
    return [
        sa.Column("group_id", sa.Text, primary_key=True),
        sa.Column("topic", sa.Text, primary_key=True),
        sa.Column("partition_number", sa.Integer, primary_key=True, autoincrement=False),
    ]


OFFSETS = sa.Table("worker_offsets", METADATA, *_keys(), sa.Column("next_offset", sa.BigInteger, nullable=False))
RESULTS = sa.Table(
    "worker_results",
    METADATA,
    *_keys(),
    sa.Column("record_offset", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("record_key", sa.LargeBinary),
    sa.Column("result", sa.LargeBinary, nullable=False),
    sa.Column("sequence", sa.Integer, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("started_ns", sa.BigInteger, nullable=False),
    sa.Column("finished_ns", sa.BigInteger, nullable=False),
    sa.Column("cpu_seconds", sa.Double, nullable=False),
)


def equal(table: sa.Table, values: Mapping[str, Any]) -> Iterator[sa.ColumnElement[bool]]:
    """Yield the conditions for rows with these values."""
    return (table.c[name] == value for name, value in values.items())


def move(database: Postgres | Sqlite) -> Any:
    """Return the statement that moves a partition's row up or creates it: one row, or none if it is there or beyond."""
    insert = database.insert(OFFSETS)
    return insert.on_conflict_do_update(
        index_elements=list(OFFSETS.primary_key),
        set_={"next_offset": insert.excluded.next_offset},
        where=OFFSETS.c.next_offset < insert.excluded.next_offset,
    ).execution_options(preserve_rowcount=True)


def keep(database: Postgres | Sqlite) -> Any:
    """Return the statement that writes a result: one row, or none if there already is one."""
    return database.insert(RESULTS).on_conflict_do_nothing().execution_options(preserve_rowcount=True)
