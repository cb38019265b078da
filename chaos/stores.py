"""The offset store of a run, and the table into which handlers write their effects."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from chaos.evidence import RecordId
    from chaos.postgres import Postgres

_CREATE = "CREATE TABLE chaos_effects (partition_number INTEGER NOT NULL, record_offset BIGINT NOT NULL)"


class Store(NamedTuple):
    """A database with its SQLAlchemy ``url``. ``server`` is its server, if it has one."""

    url: str
    server: Postgres | None = None

    def prepare(self) -> None:
        """Create the table of effects. It has no key, so that a second effect is visible instead of refused."""
        self._execute(_CREATE)

    def effects(self) -> Counter[RecordId]:
        """Return how many effects each request had."""
        rows = self._execute("SELECT partition_number, record_offset FROM chaos_effects")
        return Counter((int(partition), int(offset)) for partition, offset in rows)

    def _execute(self, statement: str) -> list[tuple[int, int]]:
        import sqlalchemy  # noqa: PLC0415 - an optional dependency

        engine = sqlalchemy.create_engine(self.url.replace("postgresql://", "postgresql+psycopg://"))
        try:
            with engine.begin() as connection:
                result = connection.execute(sqlalchemy.text(statement))
                return [(row[0], row[1]) for row in result] if result.returns_rows else []
        finally:
            engine.dispose()


def fetch(names: Collection[str]) -> None:
    """Install the packages that these stores need, while there is a network."""
    if "postgresql" in names:
        from chaos.postgres import running_postgres  # noqa: PLC0415 - an optional dependency

        with running_postgres():
            pass


@contextlib.contextmanager
def opened(name: str, folder: Path) -> Iterator[Store | None]:
    """Yield ``sqlite``, ``postgresql`` (with a private server), or no store, opened."""
    if not name:
        yield None
        return
    if name == "sqlite":
        store = Store(f"sqlite:///{folder}/store.db")
        store.prepare()
        yield store
        return
    from chaos.postgres import running_postgres  # noqa: PLC0415 - an optional dependency

    with running_postgres() as server:
        store = Store(server.fresh(), server)
        store.prepare()
        yield store
