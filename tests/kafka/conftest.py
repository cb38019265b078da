"""Fixtures of the end-to-end tests, which use the program only through its contract."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.kafka.support.site import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.kafka_broker import Broker


@contextlib.contextmanager
def sites_at(broker: Broker, folder: Path) -> Iterator[Callable[..., Site]]:
    """Yield a function that makes sites at this broker, or at the broker ``at``. Close all sites at the end."""
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
    """Yield a function that makes sites at the session's broker, or at ``at``. Close all sites at the end."""
    with sites_at(broker, tmp_path) as make:
        yield make


@pytest.fixture(scope="module")
def together(
    request: pytest.FixtureRequest, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Callable[..., None]], None]]:
    """Run the selected ``SCENARIOS`` of the module at the same time, since each of them mostly waits.

    A scenario gets the same function as a test with ``site``. Yield a function that waits for a scenario and raises
    its exception.
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
    """Yield a site with a replica that answers each request with its payload."""
    with sites_at(broker, tmp_path_factory.mktemp("running")) as make:
        one = make(WORKER_HANDLER_KWARGS="{}")
        one.start().wait_ready()
        yield one


@pytest.fixture
def quiet(site: Callable[..., Site]) -> Site:
    """Return a site without replicas, where only the test answers."""
    return site()
