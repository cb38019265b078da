"""The Hypothesis profile of these tests, and the fixtures that several files use."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from tests import hypothesis_profiles
from tests.mock_cluster import MockCluster
from tests.unit.poll_thread import PollThread

if TYPE_CHECKING:
    from collections.abc import Iterator

hypothesis_profiles.load()


@pytest.fixture
def poll_thread() -> PollThread:
    return PollThread()


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with contextlib.closing(MockCluster()) as one:
        yield one
