"""Fixtures for all tests. Nothing here runs unless it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kafka_broker import running_broker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kafka_broker import Broker


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """A real broker of this session's own. For tests marked ``kafka``; fails, never skips, where it cannot start."""
    with running_broker() as running:
        yield running


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Who uses the broker is marked so, lest a run of the quick tests starts one unawares."""
    for item in items:
        if "broker" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.kafka)
