"""A pytest plugin that ends a test process that hangs, so that a run ends and says where it hung.

pytest-timeout raises an exception in the main thread. That does not interrupt a call of C code, and the clean-up that
the exception starts has no limit. A test process that is stopped by a signal cannot end itself: when the whole run is
terminated for such a reason, it names the tests that were running.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

GRACE_SECONDS = 60.0
"""Time for the clean-up after a test's time limit."""
_STDERR = pytest.StashKey[int]()
_running: set[str] = set()  # tests of this process, and of the test processes that it has started


def pytest_configure(config: pytest.Config) -> None:
    """Keep the run's stderr, because a test's descriptor 2 is a file that nobody reads when its process has ended.

    Prepare for SIGTERM the main process of a run that has others. Processes that tests fork would inherit this.
    """
    config.stash[_STDERR] = os.dup(sys.__stderr__.fileno() if sys.__stderr__ else 2)
    if config.getoption("numprocesses") and "PYTEST_XDIST_WORKER" not in os.environ:
        signal.signal(signal.SIGTERM, _terminate)


def pytest_runtest_logstart(nodeid: str) -> None:
    """Add a test that runs."""
    _running.add(nodeid)


def pytest_runtest_logfinish(nodeid: str) -> None:
    """Remove it."""
    _running.discard(nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Limit a test with its fixtures."""
    _end_in(item.config, _seconds(item) + GRACE_SECONDS)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Limit the teardown once more: when a test has failed, pytest cancels the limit, for its debugger."""
    _end_in(item.config, _seconds(item) + GRACE_SECONDS)


def _terminate(*_: object) -> None:
    """End the run in the usual way: with the failures so far, and without the broker and the test processes."""
    pytest.exit(f"terminated while these tests were running: {', '.join(sorted(_running))}", 128 + signal.SIGTERM)


def _end_in(config: pytest.Config, seconds: float) -> None:
    """End this process then, with the stacks of all threads. C code does it, so a held interpreter lock is no matter.

    This replaces an earlier limit.
    """
    faulthandler.dump_traceback_later(seconds, exit=True, file=config.stash[_STDERR])


def _seconds(item: pytest.Item) -> float:
    """Return the time limit that pytest-timeout gives the test."""
    if marker := item.get_closest_marker("timeout"):
        return float(marker.args[0])
    return float(item.config.getoption("timeout") or item.config.getini("timeout"))
