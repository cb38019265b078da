"""Real child processes of the supervisor."""

from __future__ import annotations

import os
import signal

from tests.kafka.support.waiting import until
from worker.supervisor.child import Child


def has_ended(child: Child) -> bool:
    """Return whether the process is a zombie: it has ended and was not reaped."""
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def test_the_start_of_a_child_leaves_the_exit_codes_of_ended_children_readable() -> None:
    """Two processes may end in the same turn of the supervisor, which starts a third to replace the first."""
    children = [Child("ends", "os:_exit", 3), Child("is killed", "time:sleep", 60)]
    children[1].signal(signal.SIGKILL)
    until(lambda: all(has_ended(child) for child in children), "both have ended", seconds=20)
    third = Child("another", "os:_exit", 0)
    assert [child.ended() for child in children] == [3, -signal.SIGKILL]
    until(lambda: third.ended() == 0, "the third has ended", seconds=20)
