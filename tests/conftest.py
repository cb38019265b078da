"""Fixtures for all tests. They run only on request."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import hangs, namespaces
from tests.kafka_broker import SharedBroker
from tests.running_order import Scheduler, in_running_order

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.kafka_broker import Broker

ROOT = Path(__file__).parents[1]
UNMEASURED = {Path("tests/model/test_detached_model.py"), Path("tests/process_fake/test_simulation.py")}
"""Long computations in Python, which take four times as long under coverage. Other tests cover the same code."""

LOST_BROKER = pytest.StashKey[str]()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Broker:
    """Return the run's real broker, for tests marked ``kafka``. If it cannot start, fail instead of skipping."""
    folder = tmp_path_factory.getbasetemp()
    return SharedBroker(folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder).start()


def pytest_configure(config: pytest.Config) -> None:
    """End test processes that hang."""
    config.pluginmanager.register(hangs)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Fail a test that moves the test process to other namespaces, where later tests would not find the broker."""
    with namespaces.kept():
        return (yield)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """End the broker when all test processes have ended."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        folder: Path = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # as the fixture
        session.config.stash[LOST_BROKER] = SharedBroker(folder).end()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say if the broker had ended before the tests, which explains why they failed."""
    if lost := config.stash.get(LOST_BROKER, ""):
        terminalreporter.section("shared broker", red=True)
        terminalreporter.line(lost)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduler | None:
    """Return a scheduler that runs some files in the same test process, if whole files are distributed."""
    return Scheduler(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use the broker, so that quick runs never start one. Put slow files first."""
    for item in items:
        if "broker" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.kafka)
        if item.path.relative_to(ROOT) in UNMEASURED:
            item.add_marker(pytest.mark.no_cover)
    items[:] = in_running_order(items, lambda item: item.path.relative_to(ROOT))
