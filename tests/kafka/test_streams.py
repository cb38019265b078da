"""Many short tasks, and short ones beside long ones."""

from __future__ import annotations

import json
import random
import time
from typing import TYPE_CHECKING

import pytest

from tests.kafka.support.topics import task

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.support.site import Site

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]


def test_two_thousand_empty_tasks_are_answered_once_each(site: Callable[..., Site]) -> None:
    """This takes seconds: there is no wait between two tasks."""
    one = site(partitions=4, WORKER_PROCESSES="2")
    one.start().wait_ready()
    began = time.monotonic()
    one.submit(task(number, "go") for number in range(2000))
    one.wait_answered()
    assert time.monotonic() - began < 30
    one.finish()
    one.started_once()
    assert sorted(answer.response.sequence for answer in one.answers.records) == list(range(2000))


def test_short_and_long_tasks_keep_the_order_of_each_partition(site: Callable[..., Site]) -> None:
    """The tasks take 1 ms or 2 s. Each starts once."""
    one = site(partitions=4, WORKER_PROCESSES="2")
    one.start().wait_ready()
    seconds = [2] * 4 + [0.001] * 400
    random.Random(5).shuffle(seconds)
    one.submit(task(n, json.dumps({"do": "nap", "seconds": nap})) for n, nap in enumerate(seconds))
    one.finish()
    one.started_once()
    for partition in range(4):
        offsets = [entry.offset for entry in one.journal.entries("start") if entry.partition == partition]
        assert offsets == sorted(offsets)
