"""The first signal to a replica that already drains because of a crash loop."""

from __future__ import annotations

import signal
import time
from typing import Any

Start = Any


def test_the_first_signal_lets_running_tasks_finish(replica: Start) -> None:
    one = replica("busy", "failing")
    one.wait_for("process.crash_loop")
    time.sleep(0.3)
    one.send(signal.SIGTERM)
    one.wait_for("supervisor.signal")
    time.sleep(1)
    assert not one.events("supervisor.cancelling")
