"""The pytest plugin with fixtures for testing handlers. It imports the worker only when a fixture is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from worker.testing.attempts import Result
    from worker.testing.cluster import Cluster


@pytest.fixture
def run_handler() -> Callable[..., Result]:
    """Return ``worker.testing.run_handler``, which runs one attempt of a handler without Kafka."""
    from worker.testing import attempts  # noqa: PLC0415 - see above

    return attempts.run_handler


@pytest.fixture
def worker_cluster() -> Iterator[Cluster]:
    """Yield an in-memory cluster with two partitions, closed after the test."""
    from worker.testing import cluster  # noqa: PLC0415 - see above

    with cluster.Cluster() as one:
        yield one
