"""The features of a run: their parts of a plan, and a violation of each of their invariants."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from chaos import features, plan, requests, watch
from chaos.evidence import Evidence, FaultWindow, Resolved, StateRecord
from chaos.messages import json_request, payload_of, request, response, sequence_of
from chaos.options import Options
from tests.chaos.evidence import answer, broken, entry, good, item
from worker.formats import FORMATS

EVERYTHING = "+".join(features.FEATURES)


# -- plans


def test_features_are_sorted_and_include_the_features_that_they_need() -> None:
    assert features.parse("", 1) == ""
    assert features.parse("limits+cancels", 1) == "cancels+isolation+limits"
    assert features.parse("drawn", 1) == features.parse("drawn", 1)
    assert len({features.parse("drawn", seed) for seed in range(20)}) > 10
    with pytest.raises(ValueError, match="no feature is called canels: choose from cancels,"):
        features.parse("canels", 1)
    with pytest.raises(ValueError, match="client cannot be used with secured"):
        features.parse("secured+client", 1)
    with pytest.raises(ValueError, match="choose pipeline or json"):
        features.parse("pipeline+json", 1)
    with pytest.raises(ValueError, match="offset store"):
        features.parse("json", 1, store="sqlite")


def test_features_that_need_private_brokers_or_spark_are_not_drawn() -> None:
    drawn = {name for seed in range(40) for name in features.parse("drawn", seed).split("+")}
    private = {name for name in features.FEATURES if features.need_private_brokers([name])}
    assert private == {"secured", "upgrade"}
    assert drawn == features.FEATURES.keys() - private - {"pipeline"}


def test_the_state_topic_is_set_only_if_a_feature_needs_it() -> None:
    assert features.use_states(["isolation", "detaching"])
    assert not features.use_states(["isolation", "json"])
    assert features.settings(["extra-slots"]) == {"WORKER_LONG_AFTER": "1s", "WORKER_EXTRA_SLOTS": "1"}


def drawn(used: str) -> plan.Plan:
    return plan.draw(Options(3, minutes=20, mix="requests", features=used), rights=())


def test_every_feature_has_its_requests() -> None:
    kinds = Counter(one.kind for one in drawn(EVERYTHING).items)
    for feature in features.FEATURES.values():
        assert all(kinds[kind] > 20 for kind in feature.kinds)
    cancelled = [one for one in drawn(EVERYTHING).items if one.cancel_after is not None]
    assert len(cancelled) > 200
    assert {"long", "steps", "sleep"} <= {one.kind for one in cancelled}


def test_features_do_not_change_the_other_requests() -> None:
    plain, rich = drawn("").items, drawn(EVERYTHING.replace("+json", "").replace("+pipeline", "")).items
    featured = {kind for feature in features.FEATURES.values() for kind in feature.kinds}
    assert len(plain) == len(rich)
    for one, other in zip(plain, rich, strict=True):
        assert other.kind in featured or one == other._replace(cancel_after=None)


def test_under_json_requests_are_json_and_malformed_ones_are_not_text() -> None:
    for one in drawn("json").items:
        if one.kind not in requests.MALFORMED:
            assert sequence_of(one.value or b"") == one.sequence
            assert json.loads(one.value or b"")
        elif one.value:
            with pytest.raises(UnicodeDecodeError):
                one.value.decode()


def test_messages_are_decoded_in_both_formats() -> None:
    assert sequence_of(request(7, "{}")) == sequence_of(json_request(7, "{}")) == 7
    assert response(b'{"sequence": 7, "outcome": "OK", "origin": {"offset": "42"}}').origin.offset == 42


# -- checkpoints


def with_steps(*resumes: tuple[float, int]) -> Evidence:
    """Return a run whose first request saved checkpoints 1 to 3 at 0.1, 0.2 and 0.3 s, then resumed at these times."""
    journal = [entry("resume", 0, time)._replace(step=step) for time, step in resumes]
    journal += [entry("checkpoint", 0, step / 10)._replace(step=step) for step in (1, 2, 3)]
    states = [StateRecord((0, 0), step / 10, start=(1, 1), step=step) for step in (1, 2, 3)]
    return replace(good(), journal=[*good().journal, *journal], states=states)


@pytest.mark.parametrize(
    ("resume", "found"),
    [
        ((5.0, 3), set()),
        ((5.0, 2), {"checkpoints"}),  # goes back
        ((5.0, 0), {"checkpoints"}),
        ((1.05, 0), set()),  # no checkpoint was confirmed for long enough
        ((5.0, 4), set()),  # died before it journaled its checkpoint
        ((5.0, 5), {"checkpoints"}),  # no start saved it
    ],
)
def test_a_start_resumes_from_the_last_confirmed_checkpoint(resume: tuple[float, int], found: set[str]) -> None:
    assert broken(with_steps(resume)) == found


def test_a_late_checkpoint_of_an_earlier_start_does_not_count() -> None:
    e = with_steps((5.0, 3))
    zombie = StateRecord((0, 0), 1.0, start=(0, 9), step=9)
    assert broken(replace(e, states=[*e.states, zombie])) == set()
    later = StateRecord((0, 0), 1.0, start=(2, 2), step=9)
    assert broken(replace(e, states=[*e.states, later])) == {"checkpoints"}
    removed = StateRecord((0, 0), 2.0, removed=True)
    assert broken(replace(with_steps((5.0, 0)), states=[*e.states, removed])) == set()


# -- cancel requests


def test_only_a_request_with_a_cancel_request_may_be_answered_cancelled() -> None:
    e = replace(good(), answers=[answer(0, "CANCELLED"), *good().answers[1:]])
    assert broken(e) == {"outcome"}
    assert broken(replace(e, cancelled={(0, 0): 0.1})) == set()
    twice = replace(e, cancelled={(0, 0): 0.1}, answers=[*e.answers, answer(0)])
    assert broken(twice) == {"duplicate"}


@pytest.mark.parametrize(
    ("at", "fault", "found"),
    [(-4.0, None, set()), (-9.0, None, {"cancel"}), (-9.0, FaultWindow(-5.0, -4.0), set())],
)
def test_a_request_does_not_start_long_after_it_was_cancelled(
    at: float, fault: FaultWindow | None, found: set[str]
) -> None:
    e = replace(good(), cancelled={(0, 0): at}, fault_windows=[fault] if fault else [])
    assert broken(e) == found


def test_at_most_once_a_request_cancelled_without_a_start_may_be_reported_as_lost() -> None:
    """The next owner does not know of an answer whose commit was lost. A result without a start is a contradiction."""
    g = good("at-most-once")
    journal = [one for one in g.journal if one.record != (0, 0)]
    e = replace(g, journal=journal, reported_lost=frozenset({(0, 0)}), cancelled={(0, 0): 0.1})
    assert broken(replace(e, answers=[answer(0, "CANCELLED"), *g.answers[1:]])) == set()
    assert broken(e) == {"lost"}
    assert broken(replace(e, answers=[answer(0, "CANCELLED"), *g.answers[1:]], cancelled={})) == {"lost"}


# -- follow-up requests


def with_follow_ups(guarantee: str, count: int) -> Evidence:
    """Return a run whose first request sends ``count`` requests, which are behind the others."""
    places = [(0, 4 + n) for n in range(count)]
    g = good(guarantee)
    return replace(
        g,
        options=replace(g.options, features="follow-ups"),
        sent={**g.sent, (0, 0): item(0, "follow-up"), **{place: item(place[1]) for place in places}},
        answers=[*g.answers, *(answer(place[1]) for place in places)],
        journal=[
            *g.journal,
            *(entry(event, place[1], place[1] + 0.1) for place in places for event in ("start", "end")),
        ],
        committed={0: 4 + count},
        ends={0: 4 + count},
        follow_ups=dict.fromkeys(places, (0, 0)),
    )


@pytest.mark.parametrize(
    ("guarantee", "count", "found"),
    [
        ("exactly-once", 1, set()),
        ("exactly-once", 0, {"follow-ups"}),
        ("exactly-once", 2, {"follow-ups"}),
        ("at-least-once", 0, {"follow-ups"}),
        ("at-least-once", 2, {"follow-ups"}),
        ("at-most-once", 0, set()),
        ("at-most-once", 2, {"follow-ups"}),
    ],
)
def test_a_request_has_one_follow_up_request(guarantee: str, count: int, found: set[str]) -> None:
    assert broken(with_follow_ups(guarantee, count)) == found


def test_at_least_once_a_fault_explains_a_second_follow_up_request() -> None:
    e = with_follow_ups("at-least-once", 2)
    again = [entry("start", 0, 0.4), entry("end", 0, 0.5)]
    two = replace(e, journal=[*e.journal, *again], fault_windows=[FaultWindow(0.2, 0.3, frozenset({"r0"}))])
    assert broken(two) == set()
    assert broken(replace(two, fault_windows=[])) >= {"follow-ups"}


def test_exactly_once_a_request_without_an_answer_has_no_follow_up_request() -> None:
    e = with_follow_ups("exactly-once", 1)
    failed = replace(e, answers=[one for one in e.answers if one.record != (0, 0)])
    assert broken(failed) == {"lost", "follow-ups"}


# -- the client


ECHO = Resolved("OK", "echo-0", "echo-0")


def submitted(future: Resolved = ECHO, found_again: Resolved = ECHO) -> Evidence:
    """Return a run whose first request was submitted through the client. Its result must be "echo-0"."""
    return replace(good(), futures={(0, 0): future}, found_again={(0, 0): found_again})


@pytest.mark.parametrize(
    ("one", "found"),
    [
        (ECHO, set()),
        (Resolved("", "", "echo-0"), {"client"}),  # never resolved
        (Resolved("OK", "echo-7", "echo-0"), {"client"}),  # of another request
        (Resolved("DEAD_LETTERED", "", "echo-0"), {"client"}),  # its answer says OK
        (Resolved("BrokerError('the client failed')", "", "echo-0"), {"client"}),
    ],
)
def test_a_future_resolves_to_the_answer(one: Resolved, found: set[str]) -> None:
    assert broken(submitted(future=one)) == found
    assert broken(submitted(found_again=one)) == found


def test_a_search_by_id_need_not_find_an_answer_that_is_dated_hours_before() -> None:
    nothing = Resolved("", "", "echo-0")
    e = submitted(found_again=nothing)
    set_back = replace(e, answers=[one._replace(set_back=True) for one in e.answers])
    assert broken(e) == {"client"}
    assert broken(set_back) == set()
    assert broken(replace(set_back, futures={(0, 0): nothing})) == {"client"}  # a waiting future resolves


def test_at_most_once_a_future_without_an_answer_does_not_resolve() -> None:
    e = submitted()
    lost = replace(e, options=Options(1, "at-most-once"), answers=e.answers[1:])
    assert broken(lost) == {"client"}  # it found an answer that was not committed
    waiting = dict.fromkeys(e.futures, Resolved("", "", "echo-0"))
    assert broken(replace(lost, futures=waiting, found_again=waiting)) == set()


def test_the_suite_encodes_requests_as_the_client_does() -> None:
    """The suite compares the bytes of a dead letter with these bytes."""
    for name, ours in (("protobuf", request), ("json", json_request)):
        assert FORMATS[name].encode_request(7, '{"do": "echo"}') == ours(7, '{"do": "echo"}')
        assert payload_of(ours(7, '{"do": "echo"}')) == '{"do": "echo"}'


# -- child processes


@pytest.mark.parametrize(("used", "found"), [("isolation", set()), ("", {"starts"})])
def test_a_request_that_ends_its_child_process_starts_again(used: str, found: set[str]) -> None:
    """Without isolation, the process of this journal wrote after the crash, so it had survived."""
    crash = [entry("start", 1, 0.8), entry("crash", 1, 0.85)]
    e = replace(good(), options=replace(good().options, features=used), journal=[*good().journal, *crash])
    later = [one._replace(attempt=2) if one.record == (0, 1) and one.time >= 1 else one for one in e.journal]
    assert broken(replace(e, journal=later)) == found


def test_at_most_once_a_request_whose_child_process_dies_is_answered() -> None:
    g = good("at-most-once")
    e = replace(g, options=replace(g.options, features="isolation"))
    assert requests.expected(item(0, "segfault"), "at-most-once", isolated=True) >= {"DEAD_LETTERED"}
    dead = [answer(0, "DEAD_LETTERED")._replace(sequence=0), *g.answers[1:]]
    killed = [one for one in g.journal if one.record != (0, 0) or one.event == "start"]
    assert "outcome" not in broken(replace(e, answers=dead, journal=killed))
    assert "outcome" in broken(replace(g, answers=dead, journal=killed))


@pytest.mark.parametrize(("committed", "end"), [(7, 7), (8, 8), (9, 9), (6, 7), (10, 7), (0, 7)])
def test_a_commit_may_be_before_or_behind_the_markers_of_transactions(committed: int, end: int) -> None:
    """The last request is at 6, and two markers follow it."""
    assert watch.ends_of({0: committed}, {0: 9}, {0: 7}) == {0: end}
