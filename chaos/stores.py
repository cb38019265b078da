"""The store that holds results and offsets together, and the table that handlers write their effects into."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from chaos.ledger import Place
    from tests.stores.postgres import Postgres

_CREATE = "CREATE TABLE chaos_effects (partition_number INTEGER NOT NULL, record_offset BIGINT NOT NULL)"


class Store(NamedTuple):
    """A database; ``url`` as SQLAlchemy writes it. ``server`` is the one behind it, if there is one."""

    url: str
    server: Postgres | None = None

    def prepare(self) -> None:
        """Make the table of effects. It has no key: a second effect must not be refused but seen."""
        self._execute(_CREATE)

    def effects(self) -> Counter[Place]:
        """How many effects each request has had."""
        rows = self._execute("SELECT partition_number, record_offset FROM chaos_effects")
        return Counter((int(partition), int(offset)) for partition, offset in rows)

    def _execute(self, statement: str) -> list[tuple[int, int]]:
        import sqlalchemy  # noqa: PLC0415 - not everybody has it

        engine = sqlalchemy.create_engine(self.url.replace("postgresql://", "postgresql+psycopg://"))
        try:
            with engine.begin() as connection:
                result = connection.execute(sqlalchemy.text(statement))
                return [(row[0], row[1]) for row in result] if result.returns_rows else []
        finally:
            engine.dispose()


def fetch(names: Collection[str]) -> None:
    """Install what these need and is not here, while there is a network to fetch it from."""
    if "postgresql" in names:
        from tests.stores.postgres import running_postgres  # noqa: PLC0415 - it needs what few have

        with running_postgres():
            pass


@contextlib.contextmanager
def opened(name: str, folder: Path) -> Iterator[Store | None]:
    """``sqlite``, ``postgresql`` (a server of the run's own), or nothing."""
    if not name:
        yield None
        return
    if name == "sqlite":
        store = Store(f"sqlite:///{folder}/store.db")
        store.prepare()
        yield store
        return
    from tests.stores.postgres import running_postgres  # noqa: PLC0415 - it needs what few have

    with running_postgres() as server:
        store = Store(server.fresh(), server)
        store.prepare()
        yield store
