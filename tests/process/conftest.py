"""Fixtures of the tests with real processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.process.observe import Replica, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Callable[..., Replica]]:
    """Yield a function that starts a replica: a behaviour of ``StandIn`` per process, options of ``replica.main``."""
    started = []

    def start(*behaviours: str, **options: Any) -> Replica:
        one = Replica(tmp_path, behaviours, options)
        started.append(one)
        until((tmp_path / "ready").exists)
        return one

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()
        print(one.stderr)  # noqa: T201 - shown if the test failed
