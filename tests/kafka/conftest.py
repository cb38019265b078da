"""Fixtures of the end-to-end tests: they know the program by its contract only."""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.kafka.support.site import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.kafka_broker import Broker

LONG = os.environ.get("E2E_LONG") == "1"


@contextlib.contextmanager
def sites_at(broker: Broker, folder: Path) -> Iterator[Callable[..., Site]]:
    """Makes sites at this broker, or at ``at``; all are closed at the end."""
    made: list[Site] = []

    def make(*, at: Broker | None = None, **options: Any) -> Site:
        made.append(Site(at or broker, folder, **options))
        return made[-1]

    try:
        yield make
    finally:
        for one in made:
            one.close()


@pytest.fixture
def site(broker: Broker, tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """Makes sites at the session's broker, or at ``at``; all are closed at the end."""
    with sites_at(broker, tmp_path) as make:
        yield make


@pytest.fixture(scope="module")
def together(
    request: pytest.FixtureRequest, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Callable[..., None]], None]]:
    """Runs the chosen ones of the module's ``SCENARIOS`` at the same time, since each is mostly waiting.

    A scenario is called with what ``site`` gives. Gives a function that waits for one and raises what it raised.
    """
    items = (item for item in request.session.items if isinstance(item, pytest.Function))
    rows = [item.callspec.params for item in items if item.module is request.module and hasattr(item, "callspec")]
    scenarios = [cast("Callable[..., None]", row["scenario"]) for row in rows if "scenario" in row]

    def play(scenario: Callable[..., None], folder: Path) -> None:
        with sites_at(broker, folder) as make:
            scenario(make)

    with ThreadPoolExecutor(len(scenarios)) as pool:
        playing = {one: pool.submit(play, one, tmp_path_factory.mktemp(one.__name__)) for one in scenarios}
        yield lambda scenario: playing[scenario].result()


@pytest.fixture(scope="module")
def running(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site with a replica that answers each payload with itself."""
    with sites_at(broker, tmp_path_factory.mktemp("running")) as make:
        one = make(WORKER_HANDLER_KWARGS="{}")
        one.start().wait_ready()
        yield one


@pytest.fixture
def quiet(site: Callable[..., Site]) -> Site:
    """A site where nobody answers but the test."""
    return site()
