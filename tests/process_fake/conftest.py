"""A new world for every test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import structlog

from tests import hypothesis_profiles
from tests.process_fake.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

hypothesis_profiles.load()


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Two partitions of requests, or as many as the file's ``PARTITIONS``."""
    one = World(partitions=getattr(request.module, "PARTITIONS", 2))
    yield one
    one.clock.close()


@pytest.fixture(autouse=True)
def lines() -> Iterator[list[Any]]:
    """The log lines, which nobody shall see."""
    with structlog.testing.capture_logs() as lines:
        yield lines
