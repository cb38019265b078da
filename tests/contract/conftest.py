"""Each test here runs on the fake Kafka and on a real one, there with both group protocols."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.kafkas import FakeKafka, Kafka, RealKafka

if TYPE_CHECKING:
    from collections.abc import Iterator

REAL = [pytest.param(protocol, marks=pytest.mark.kafka) for protocol in ("consumer", "classic")]


@pytest.fixture(params=["fake", *REAL])
def kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """A Kafka with a group of the test's own. The real one is only started where a test is run on it."""
    one: Kafka = FakeKafka() if request.param == "fake" else RealKafka(request.getfixturevalue("broker"), request.param)
    yield one
    one.close()
