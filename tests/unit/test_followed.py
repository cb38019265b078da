"""A partition may start as soon as its states on the state topic are known."""

from __future__ import annotations

from unittest.mock import MagicMock

from worker.core.model import Partition
from worker.process.followed import Followed
from worker.state.port import CaughtUp

PLACE = Partition("requests", 0)


def test_a_start_that_waits_for_a_transaction_reads_the_states_once() -> None:
    topic = MagicMock()
    followed = Followed(topic, lambda: 0.0)
    assert not followed.begin([PLACE])
    topic.receive.return_value = [CaughtUp(PLACE, 1)]
    assert list(followed.take_in()) == []
    assert followed.begin([PLACE])
    assert followed.begin([PLACE])  # a transaction was under way
    topic.follow.assert_called_once_with(PLACE, 1)
    followed.began(PLACE)
    assert not followed.begin([PLACE])
    topic.follow.assert_called_with(PLACE, 2)
