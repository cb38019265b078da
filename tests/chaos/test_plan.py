"""The plan of a run: drawn from its seed, and nothing else."""

from __future__ import annotations

import dataclasses
import json
from itertools import pairwise, product

import pytest

from chaos import faults, features, messages, plan, requests, run_lists
from chaos.options import Options
from chaos.scheduler import ACTIONS as FAULT_ACTIONS

GUARANTEES = ("at-most-once", "at-least-once", "exactly-once")
OPTIONS = Options(7, faults=80, gap=0.5)


def test_a_seed_always_gives_the_same_plan() -> None:
    assert plan.draw(OPTIONS, rights=faults.RIGHTS) == plan.draw(OPTIONS, rights=faults.RIGHTS)


def test_another_seed_gives_another_plan() -> None:
    other = plan.draw(dataclasses.replace(OPTIONS, seed=8), rights=faults.RIGHTS)
    drawn = plan.draw(OPTIONS, rights=faults.RIGHTS)
    assert drawn.faults != other.faults
    assert drawn.items != other.items


def test_a_plan_has_the_requested_number_of_faults_in_order() -> None:
    drawn = plan.draw(OPTIONS, rights=faults.RIGHTS)
    assert [one.number for one in drawn.faults] == list(range(80))
    assert all(one.at <= other.at for one, other in pairwise(drawn.faults))


def test_a_plan_with_a_duration_has_the_faults_that_fit_into_it() -> None:
    drawn = plan.draw(Options(7, minutes=0.5), rights=faults.RIGHTS)
    assert drawn.faults
    assert all(one.at < 30 for one in drawn.faults)
    assert drawn.seconds >= 30


@pytest.mark.parametrize("area", ["broker", "network"])
def test_faults_of_one_place_come_one_after_another(area: str) -> None:
    drawn = plan.draw(dataclasses.replace(OPTIONS, mix=f"{area}s" if area == "broker" else area), rights=faults.RIGHTS)
    by_place: dict[int, float] = {}
    for one in drawn.faults:
        place = 0 if area == "broker" else one.replica
        assert one.at >= by_place.get(place, 0.0) - 0.01
        by_place[place] = one.at + one.seconds + plan.RECOVERY[area]


def test_some_faults_need_root_or_three_brokers_or_a_server_for_the_store() -> None:
    def names(**given: object) -> set[str]:
        return {kind.name for kind in faults.available("all", **given)}  # type: ignore[arg-type]

    assert "broker-disk-full" not in names(brokers=3, rights=())
    assert names(brokers=3, rights={"disks"}) & {"broker-disk-full", "loss"} == {"broker-disk-full"}
    assert "broker-rolling" not in names(brokers=1, rights=faults.RIGHTS)
    assert not names(brokers=3, rights=(), store="postgresql") & {"drop", "loss"}
    assert "store-kill" not in names(brokers=3, rights=faults.RIGHTS, store="sqlite")
    assert names(brokers=3, rights=faults.RIGHTS, store="postgresql", uses=features.FEATURES) == set(faults.BY_NAME)
    featured = {"kill-child", "delete-records", "add-partitions", "clock-forward", "clock-back"}
    featured |= {"rotate-credentials", "broker-upgrade", "kill-pipeline"}
    assert not names(brokers=3, rights=faults.RIGHTS) & featured
    assert not names(brokers=3, rights={"packets"}, uses={"clocks"}) & featured


def test_a_mix_may_be_named_by_its_faults() -> None:
    kinds = faults.available("cut+broker-kill", brokers=1, rights=())
    assert {kind.name for kind in kinds} == {"cut", "broker-kill"}
    with pytest.raises(ValueError, match="cutt"):
        faults.available("cutt", brokers=1, rights=())


def test_every_fault_has_an_action_and_every_request_a_handler() -> None:
    from chaos.handlers import ACTIONS  # noqa: PLC0415 - only a worker imports it

    assert set(FAULT_ACTIONS) == set(faults.BY_NAME)
    kinds = requests.NORMAL | requests.DEAD_LETTERED | requests.EXPIRING
    assert kinds - requests.MALFORMED <= ACTIONS.keys()


def test_every_kind_of_request_has_one_outcome_unless_it_crashes_at_most_once() -> None:
    for kind in requests.NORMAL | requests.DEAD_LETTERED | requests.EXPIRING:
        item = requests.Item(1, 0.0, kind, b"k", b"v")
        assert requests.expected(item, "at-least-once") == requests.expected(item, "exactly-once")
        assert len(requests.expected(item, "exactly-once")) == 1
        assert (requests.expected(item, "at-most-once") == {"CANCELLED"}) == (kind in requests.CRASHING)


def test_a_plan_has_every_kind_of_request_at_the_rate_of_its_load() -> None:
    items = plan.draw(Options(3, minutes=20, faults=0, mix="requests"), rights=()).items
    assert {item.kind for item in items} >= requests.DEAD_LETTERED | requests.EXPIRING
    assert len(items) == pytest.approx(20 * 60 * requests.RATES["mixed"], rel=0.1)


def test_the_forms_together_have_more_than_3000_faults_and_their_runs_differ() -> None:
    both = (*run_lists.LONG, *run_lists.FEATURES)
    assert sum(one.faults for one in both) >= 3_500  # some find no target
    assert len(set(both)) == len(both)
    assert sum(one.faults for one in run_lists.QUICK) >= 60
    assert {one.guarantee for one in run_lists.QUICK} == {"at-most-once", "at-least-once", "exactly-once"}


def test_the_forms_combine_every_guarantee_with_every_other_option() -> None:
    both = (*run_lists.LONG, *run_lists.FEATURES)
    assert {(one.guarantee, one.ordering) for one in both} == set(
        product(GUARANTEES, ("partition", "key", "unordered"))
    )
    assert {(one.guarantee, one.protocol, one.brokers) for one in both} == set(
        product(GUARANTEES, ("consumer", "classic"), (1, 3))
    )
    assert {(one.guarantee, name) for one in both for name in one.uses} == set(product(GUARANTEES, features.FEATURES))


def test_the_forms_inject_every_fault() -> None:
    both = (*run_lists.LONG, *run_lists.FEATURES)
    planned = {fault.kind.name for one in both for fault in plan.draw(one, rights=faults.RIGHTS).faults}
    assert planned == set(faults.BY_NAME)


def test_the_soak_is_an_hour_of_tasks_of_1_ms_to_a_minute_and_can_be_shorter() -> None:
    drawn = plan.draw(run_lists.soak({}), rights=faults.RIGHTS)
    assert drawn.options.brokers == 3
    assert drawn.seconds >= 3600
    assert len(drawn.items) >= 100_000
    assert len(drawn.faults) >= 600
    seconds = [_seconds_of(item) for item in drawn.items if item.kind in ("sleep", "long", "steps")]
    assert min(seconds) < 0.0015
    assert 50 < max(seconds) <= 60
    # The tasks use less than half the time of two replicas with two processes. The rest is for faults.
    assert sum(seconds) < 0.5 * 3600 * drawn.options.replicas * drawn.options.processes
    short = run_lists.soak({"minutes": 0.5, "guarantee": "at-least-once"})
    assert (short.minutes, short.guarantee, short.load) == (0.5, "at-least-once", "soak")


def _seconds_of(item: requests.Item) -> float:
    task = json.loads(messages.payload_of(item.value or b""))
    return float(task["seconds"] * task.get("steps", 1))


def test_every_guarantee_has_a_run_with_clean_faults_only() -> None:
    assert {one.guarantee for one in run_lists.LONG if one.mix == "clean"} == set(GUARANTEES)


def test_the_default_settings_have_runs_of_every_guarantee() -> None:
    assert {one.guarantee for one in run_lists.LONG if (one.session, one.max_attempts) == (45.0, 3)} == set(GUARANTEES)
