"""With an offset store, the database has one row per request, despite kills and stops of processes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.kafka.faults import effects
from tests.kafka.faults.chaos import Size, busy_site, storm
from tests.kafka.faults.faulty import FAULTS
from tests.kafka.support.replica import ROOT
from tests.kafka.support.topics import task
from tests.long_form import LONG
from tests.stores.postgres import running_postgres

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.support.site import Site

    Scenario = Callable[..., None]

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900 if LONG else 240)]

SIZE = Size(3_000, 32) if LONG else Size(240, 6)
WAIT_LIMIT = 300.0 if LONG else 120.0


def play(site: Callable[..., Site], url: Callable[[Site], str], protocol: str, seed: int) -> None:
    """Run the storm, and then check the answers and the rows."""
    variables = {**effects.EFFECTS, "PYTHONPATH": f"{FAULTS}:{ROOT}"}
    one = busy_site(site, "exactly-once", protocol, **variables)
    address = url(one)
    effects.prepare(address)
    storm(one, SIZE, seed=seed, retries=0.1, variables={"WORKER_STORE_URL": address})
    one.finish(twice=one.sent, seconds=WAIT_LIMIT)
    assert {answer.outcome for answer in one.answers.records} == {"OK"}
    requests = sorted(sent[1:3] for sent in one.sent)
    assert effects.rows_of(address) == requests
    assert effects.results_of(address) == requests


def chaos_over_sqlite(site: Callable[..., Site]) -> None:
    play(site, lambda one: f"sqlite:///{one.folder / 'store.db'}", "consumer", 6)


def chaos_over_postgres(site: Callable[..., Site]) -> None:
    with running_postgres() as server:
        play(site, lambda _: server.fresh(), "classic", 7)


def a_result_that_no_answer_can_hold_leaves_no_row(site: Callable[..., Site]) -> None:
    """The request is a dead letter. A replay of it must not write the row a second time."""
    variables = {**effects.EFFECTS, "PYTHONPATH": f"{FAULTS}:{ROOT}"}
    one = site(partitions=1, **variables)
    address = f"sqlite:///{one.folder / 'store.db'}"
    effects.prepare(address)
    large = json.dumps({"do": "big", "size": 2_000_000})
    one.submit(task(number, payload, partition=0) for number, payload in enumerate(["0", large, "0"]))
    one.start(WORKER_STORE_URL=address)
    one.finish()
    outcomes = [one.answer_to(sent).outcome for sent in one.sent]
    assert outcomes == ["OK", "DEAD_LETTERED", "OK"]
    assert one.answer_to(one.sent[1]).response.error.type == "OversizedResult"
    assert effects.rows_of(address) == effects.results_of(address) == [(0, 0), (0, 2)]


SCENARIOS = [chaos_over_sqlite, chaos_over_postgres, a_result_that_no_answer_can_hold_leaves_no_row]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_store_chaos(together: Callable[[Scenario], None], scenario: Scenario) -> None:
    together(scenario)
