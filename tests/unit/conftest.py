"""Hypothesis as these tests use it, and a fixture of several files."""

import pytest

from tests import hypothesis_profiles
from tests.unit.poll_thread import PollThread

hypothesis_profiles.load()


@pytest.fixture
def poll_thread() -> PollThread:
    return PollThread()
