"""The Hypothesis profile of these tests, and a fixture that several files use."""

import pytest

from tests import hypothesis_profiles
from tests.unit.poll_thread import PollThread

hypothesis_profiles.load()


@pytest.fixture
def poll_thread() -> PollThread:
    return PollThread()
