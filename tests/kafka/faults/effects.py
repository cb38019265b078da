"""The handler for replicas with an offset store: ``work``, and a row for every task in the store's transaction."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLE = "CREATE TABLE IF NOT EXISTS effects (part BIGINT, place BIGINT)"  # no key: a second row for a task is visible
INSERT = sa.text("INSERT INTO effects VALUES (:part, :place)")
SELECT = sa.text("SELECT part, place FROM effects ORDER BY part, place")
# The variables of a replica with such a store, except the store's address.
EFFECTS = {"WORKER_OFFSET_STORE": "worker.stores.sql:store", "WORKER_HANDLER": "effects:handle"}


def handle(request: Any, context: Any, **kwargs: Any) -> Any:
    """Do what the payload says, and write the row."""
    import work  # type: ignore[import-not-found]  # noqa: PLC0415 - only a replica can import it

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
    """Create the table."""
    with _engine(url) as engine, engine.begin() as connection:
        connection.execute(sa.text(TABLE))


def rows_of(url: str) -> list[tuple[int, int]]:
    """Return partition and offset of each row, in order, as another connection sees them."""
    with _engine(url) as engine, engine.connect() as connection:
        return [(row.part, row.place) for row in connection.execute(SELECT)]


def results_of(url: str) -> list[tuple[int, int]]:
    """Return partition and offset of each result in the store, in order."""
    with _engine(url) as engine, engine.connect() as connection:
        found = connection.execute(sa.text("SELECT partition_number, record_offset FROM worker_results")).all()
    return sorted((row.partition_number, row.record_offset) for row in found)
