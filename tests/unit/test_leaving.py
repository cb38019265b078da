"""How a process gives up the tasks that do not end."""

from __future__ import annotations

from unittest.mock import MagicMock, PropertyMock

from worker.process.leaving import Leaving


def test_a_task_is_given_up_once_the_transaction_under_way_has_ended() -> None:
    """Without the clean commit, the next owner would count the attempt."""
    leaving, responder = Leaving.__new__(Leaving), MagicMock()
    type(responder).busy = PropertyMock(side_effect=[True, True, False, False])
    leaving._clock, leaving._responder, leaving._consumer = lambda: 0.0, responder, MagicMock()
    leaving._committer, leaving._holder = MagicMock(in_flight=False), MagicMock()
    leaving._holder.gives_up.return_value = False
    leaving._give_up_tasks()
    leaving._committer.commit_clean.assert_called_once()
