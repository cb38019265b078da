"""Fixtures of the end-to-end tests: they know the program by its contract only."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.kafka.support.site import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.kafka_broker import Broker

LONG = os.environ.get("E2E_LONG") == "1"


@pytest.fixture
def site(broker: Broker, tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """Makes sites at the session's broker, or at ``at``; all are closed at the end."""
    sites: list[Site] = []

    def make(*, at: Broker | None = None, **options: Any) -> Site:
        sites.append(Site(at or broker, tmp_path, **options))
        return sites[-1]

    yield make
    for one in sites:
        one.close()
