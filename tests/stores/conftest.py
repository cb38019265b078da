"""Fixtures with an empty database for each test: SQLite and PostgreSQL."""

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
    """Return the URL of an empty schema."""
    return postgres.fresh()


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """Return the URL of a file that does not exist yet."""
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """Return the URL of each database in turn, so that the test runs on both."""
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


@pytest.fixture
def make(url: str) -> Iterator[Make]:
    """Yield a function that opens the store. Each store that it returns acts like a separate process."""
    made: list[SqlStore] = []

    def opened(group: str = "group", limit: float = 5.0) -> SqlStore:
        made.append(SqlStore(url, group, limit))
        return made[-1]

    yield opened
    for store in made:
        store.close()
