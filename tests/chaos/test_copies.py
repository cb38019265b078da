"""Requests that the broker has stored twice."""

from __future__ import annotations

from dataclasses import replace

from chaos import copies
from tests.chaos.evidence import answer, broken, entry, good, item

SENT = {(0, 7): item(7), (1, 2): item(2)}
TOPIC = {(0, 7): (b"r7", b"value"), (1, 2): (b"r2", b"value")}


def test_a_copy_of_a_request_is_found_by_its_bytes() -> None:
    assert copies.found(TOPIC, SENT, ()) == {}
    more = {**TOPIC, (0, 6): (b"r7", b"value"), (0, 8): (b"r7", b"other"), (0, 9): (None, None)}
    assert copies.found(more, SENT, ()) == {(0, 6): item(7)}


def test_a_request_that_is_not_confirmed_may_be_in_the_topic() -> None:
    more = {**TOPIC, (0, 8): (b"r8", b"value")}
    assert copies.found(more, SENT, ()) == {}
    assert copies.found(more, SENT, [item(8)]) == {(0, 8): item(8)}


def test_a_copy_has_to_be_answered_too() -> None:
    e = good()
    two = replace(e, sent={**e.sent, (0, 4): item(1)}, copies=frozenset({(0, 4)}))
    assert broken(two) == {"lost"}
    again = answer(4)._replace(sequence=1, key=b"r1")
    journal = [*e.journal, entry("start", 4, 4.0), entry("end", 4, 4.1)]
    assert broken(replace(two, answers=[*e.answers, again], journal=journal, committed={0: 5}, ends={0: 5})) == set()
    assert broken(replace(e, answers=[*e.answers, again])) == {"origin"}  # an answer to a request that was not sent
