"""A world of its own for every test."""

from __future__ import annotations

import pytest
import structlog

from tests import hypothesis_profiles
from tests.process_fake.world import World

hypothesis_profiles.load()


@pytest.fixture
def world() -> World:
    """Two partitions of requests."""
    return World()


@pytest.fixture(autouse=True)
def quiet() -> object:
    """Log lines are not what is tested here."""
    with structlog.testing.capture_logs() as lines:
        yield lines
