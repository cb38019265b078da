"""Common functions for the tests of the stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from worker.core.model import Partition
from worker.stores.port import StoredAnswer

if TYPE_CHECKING:
    from worker.stores.sql import SqlStore

TOPIC = Partition("requests", 0)
EFFECTS = "CREATE TABLE IF NOT EXISTS effects (number BIGINT, who BIGINT)"


def answer(offset: int, result: bytes = b"done", key: bytes | None = b"key") -> StoredAnswer:
    return StoredAnswer(
        offset, key, result, offset + 100, 2, 1_700_000_000_123_456_789, 1_700_000_001_123_456_789, 0.25
    )


def done(store: SqlStore, *offsets: int) -> None:
    """Complete requests at these offsets in the store."""
    for offset in offsets:
        store.begin(TOPIC, offset).commit(answer(offset))


def results(store: SqlStore) -> list[int]:
    """Return the offsets that have a result."""
    return [answer.offset for answer in store.answers(TOPIC, 0, 1_000_000)]


def write(connection: sa.Connection, number: int, who: int = 0) -> None:
    """Write an effect with a handler's transaction."""
    connection.execute(sa.text("INSERT INTO effects VALUES (:number, :who)"), {"number": number, "who": who})


def effects(url: str) -> list[int]:
    """Return the committed effects of handlers, read with another connection."""
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        found = [row.number for row in connection.execute(sa.text("SELECT number FROM effects ORDER BY number"))]
    engine.dispose()
    return found


def prepare_effects(url: str) -> None:
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(sa.text(EFFECTS))
    engine.dispose()
