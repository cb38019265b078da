"""For replicas with an offset store: ``work``, and a row for every task, written in the store's transaction."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLE = "CREATE TABLE IF NOT EXISTS effects (part BIGINT, place BIGINT)"  # and no key: what is written twice is seen
INSERT = sa.text("INSERT INTO effects VALUES (:part, :place)")
SELECT = sa.text("SELECT part, place FROM effects ORDER BY part, place")
# The variables of a replica that has such a store; its address is still to be given.
EFFECTS = {"WORKER_OFFSET_STORE": "worker.stores.sql:store", "WORKER_HANDLER": "effects:handle"}


def handle(request: Any, context: Any, **kwargs: Any) -> Any:
    """Write the row, and do what the payload says."""
    import work  # type: ignore[import-not-found]  # noqa: PLC0415 - there is one in the replica only

    result = work.handle(request, context, **kwargs)
    _, partition, offset = context.origin
    context.transaction.execute(INSERT, {"part": partition, "place": offset})
    return result


@contextlib.contextmanager
def _engine(url: str) -> Iterator[sa.Engine]:
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    try:
        yield engine
    finally:
        engine.dispose()


def prepare(url: str) -> None:
    """Make the table."""
    with _engine(url) as engine, engine.begin() as connection:
        connection.execute(sa.text(TABLE))


def rows_of(url: str) -> list[tuple[int, int]]:
    """Partition and offset of each row, in order, seen from outside."""
    with _engine(url) as engine, engine.connect() as connection:
        return [(row.part, row.place) for row in connection.execute(SELECT)]


def results_of(url: str) -> list[tuple[int, int]]:
    """Partition and offset of each result that the store keeps, in order."""
    with _engine(url) as engine, engine.connect() as connection:
        found = connection.execute(sa.text("SELECT partition_number, record_offset FROM worker_results")).all()
    return sorted((row.partition_number, row.record_offset) for row in found)
