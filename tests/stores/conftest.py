"""A database for each test, of each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.stores.postgres import Postgres, running_postgres
from worker.stores.sql import SqlStore

if TYPE_CHECKING:
    from pathlib import Path

Make = Callable[..., SqlStore]


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: Postgres) -> str:
    """An empty schema."""
    return postgres.fresh()


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """A file that is not there yet."""
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """The same test on both."""
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


@pytest.fixture
def make(url: str) -> Iterator[Make]:
    """Opens the store, as often as is wanted: each is like another process."""
    made: list[SqlStore] = []

    def opened(group: str = "group", limit: float = 5.0) -> SqlStore:
        made.append(SqlStore(url, group, limit))
        return made[-1]

    yield opened
    for store in made:
        store.close()
