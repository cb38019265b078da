"""Topics that are deleted and created again, while a worker runs or is stopped.

A request topic that is recreated while a worker runs is not supported: see ``docs/guarantees.md``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.kafka.support.states import PARTITIONS, States
from tests.kafka.support.topics import Reader, reading, task
from tests.kafka.support.waiting import until
from tests.kafka_broker import create_topics, delete_topic, recreate_topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.support.site import Site

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(120)]

GUARANTEES = pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once", "exactly-once"])


def forget(one: Site) -> None:
    """Forget the sent requests, and recreate the ack topic. New requests will have the same offsets again."""
    one.sent.clear()
    one.answers.close()
    recreate_topic(one.bootstrap, one.ack, one.answer_partitions)
    one.answers = Reader(one.bootstrap, one.ack, one.answer_partitions)


@GUARANTEES
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_an_idle_worker_answers_the_requests_of_a_shorter_new_topic(
    site: Callable[..., Site], guarantee: str, protocol: str
) -> None:
    """Until the worker notices the new topic, its end is below the committed offset."""
    one = site(partitions=1, WORKER_GUARANTEE=guarantee, KAFKA_GROUP_PROTOCOL=protocol)
    one.submit([task(1, "go", partition=0)] * 5)
    one.start().wait_ready()
    one.wait_answered()
    one.wait_committed()
    forget(one)
    recreate_topic(one.bootstrap, one.requests, 1)
    one.submit([task(1, "go", partition=0)] * 2)
    one.wait_answered(seconds=30)
    one.submit([task(1, "go", partition=0)] * 6)
    one.finish()


@GUARANTEES
def test_a_worker_answers_the_requests_of_a_topic_recreated_while_it_was_stopped(
    site: Callable[..., Site], guarantee: str
) -> None:
    one = site(partitions=1, WORKER_GUARANTEE=guarantee)
    one.submit([task(1, "go", partition=0)] * 5)
    one.start()
    one.finish()
    forget(one)
    recreate_topic(one.bootstrap, one.requests, 1)
    one.submit([task(1, "go", partition=0)] * 8)
    one.start()
    one.finish()


@GUARANTEES
def test_answers_and_dead_letters_go_to_the_new_topics(site: Callable[..., Site], guarantee: str) -> None:
    one = site(partitions=1, WORKER_GUARANTEE=guarantee, WORKER_MAX_ATTEMPTS="1")
    bad = task(1, json.dumps({"do": "fail"}), partition=0)
    one.submit([task(1, "go", partition=0), bad])
    one.start().wait_ready()
    one.wait_answered()
    one.wait_committed()
    forget(one)
    recreate_topic(one.bootstrap, one.dead, one.answer_partitions)
    one.submit([task(1, "go", partition=0), bad])
    one.finish()
    with reading(one.bootstrap, one.dead, one.answer_partitions) as dead_letters:
        assert len(dead_letters.read_all()) == 1


@GUARANTEES
def test_states_and_cancel_requests_go_to_the_new_state_topic(site: Callable[..., Site], guarantee: str) -> None:
    one = site(partitions=1, WORKER_GUARANTEE=guarantee, WORKER_HANDLER="steps:handle", WORKER_HANDLER_KWARGS="{}")
    states = States(one.bootstrap)
    one.start(KAFKA_STATE_TOPIC=states.topic).wait_ready()
    one.submit([task(1, json.dumps({"wait": 0}))])
    one.wait_answered()
    delete_topic(one.bootstrap, states.topic)
    create_topics(one.bootstrap, [states.topic], PARTITIONS, {"cleanup.policy": "compact"})
    (sent,) = one.submit([task(2, json.dumps({"wait": 100}))])
    until(lambda: states.table.states, one.tails)
    states.cancel(sent)
    one.finish()
    assert one.answer_to(sent).outcome == "CANCELLED"
