"""How a process gives up the tasks that do not end."""

from __future__ import annotations

import itertools
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


def test_a_detached_task_is_given_up_while_a_transaction_is_under_way() -> None:
    """The transaction may last longer than the process may wait, and the mark does not depend on it."""
    leaving, now = Leaving.__new__(Leaving), itertools.count()
    leaving._clock, leaving._responder, leaving._consumer = lambda: float(next(now)), MagicMock(busy=True), MagicMock()
    leaving._committer, leaving._holder = MagicMock(in_flight=False), MagicMock()
    leaving._give_up_tasks()
    leaving._holder.gives_up.assert_called()
    leaving._committer.commit_clean.assert_not_called()
