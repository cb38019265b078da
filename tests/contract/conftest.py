"""Fixtures. Each test here runs on the fake Kafka, and on a real one with both group protocols."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.kafkas import FakeKafka, Kafka, RealKafka

if TYPE_CHECKING:
    from collections.abc import Iterator

REAL = [pytest.param(protocol, marks=pytest.mark.kafka) for protocol in ("consumer", "classic")]


@pytest.fixture(params=["fake", *REAL])
def kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """Yield a Kafka with a new group. The real broker starts only if a test needs it."""
    one: Kafka = FakeKafka() if request.param == "fake" else RealKafka(request.getfixturevalue("broker"), request.param)
    yield one
    one.close()
