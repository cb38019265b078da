"""Fixtures: a new world for each test, and its log lines."""

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
    """Yield a world with two partitions, or with the number ``PARTITIONS`` of the test's module."""
    one = World(partitions=getattr(request.module, "PARTITIONS", 2))
    yield one
    one.clock.close()


@pytest.fixture(autouse=True)
def lines() -> Iterator[list[Any]]:
    """Yield the log lines, which are captured and not printed."""
    with structlog.testing.capture_logs() as lines:
        yield lines
