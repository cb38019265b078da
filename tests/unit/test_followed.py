"""When partitions may start: as soon as their states on the state topic are known."""

from __future__ import annotations

from unittest.mock import MagicMock

from worker.core.model import Partition
from worker.process.followed import Followed
from worker.state.port import CaughtUp

PLACE = Partition("requests", 0)


def test_states_are_read_once_for_a_start_that_has_to_wait_for_something_else() -> None:
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
