"""The content of a dead letter, and the choice of dead letters for a replay."""

from __future__ import annotations

import pytest

from worker.cli.dead_letters import DeadLetter, matches
from worker.cli.replay import plan
from worker.codec import decode_request, encode_request
from worker.core.model import Headers, Partition, Record

HEADERS: Headers = (
    ("trace", b"t1"),
    ("trace", None),
    ("x-origin-topic", b"requests"),
    ("x-origin-partition", b"3"),
    ("x-origin-offset", b"17"),
    ("x-attempts", b"2"),
    ("x-error-type", b"ValueError"),
    ("x-error-message", b"no [such] thing"),
)


def dead_letter(offset: int = 5, headers: Headers = HEADERS, time: int = 1_000, value: bytes = b"value") -> DeadLetter:
    return DeadLetter(Record(Partition("requests.dlq", 1), offset, b"key", value, headers, time))


class Journal:
    """A journal with these places, and with others that it found in the request topic."""

    def __init__(self, recorded: tuple[str, ...] = (), found: tuple[str, ...] = ()) -> None:
        self.recorded, self.found = recorded, found

    def was_replayed(self, dead_letter: DeadLetter) -> bool:
        return dead_letter.place in self.recorded or self.unrecorded(dead_letter)

    def unrecorded(self, dead_letter: DeadLetter) -> bool:
        return dead_letter.place in self.found


def test_a_replay_sends_the_original_request() -> None:
    """It has the original key, value and user's headers, not the worker's. One more header names the dead letter."""
    request = dead_letter().request()

    assert (request.topic, request.key, request.value) == ("requests", b"key", b"value")
    assert request.headers == (("trace", b"t1"), ("trace", None), ("x-replayed-from", b"requests.dlq/1/5"))


def test_a_second_replay_names_only_the_second_dead_letter() -> None:
    """The new header replaces the header of the earlier replay."""
    again = dead_letter(headers=(("x-replayed-from", b"requests.dlq/1/2"), *HEADERS))

    assert again.request().headers[-1:] == (("x-replayed-from", b"requests.dlq/1/5"),)
    assert [name for name, _ in again.request().headers].count("x-replayed-from") == 1


def test_the_fields_of_a_dead_letter_come_from_its_record_and_headers() -> None:
    """These fields are listed, and patterns match them."""
    assert dead_letter().fields(replayed=True) == {
        "time_ms": 1_000,
        "origin_topic": "requests",
        "origin_partition": 3,
        "origin_offset": 17,
        "attempts": 2,
        "error_type": "ValueError",
        "error_message": "no [such] thing",
        "key": "key",
        "place": "requests.dlq/1/5",
        "replayed": True,
    }


@pytest.mark.parametrize(
    ("patterns", "fits"),
    [
        ({}, True),
        ({"error_type": "ValueError"}, True),
        ({"error_type": "valueerror"}, False),
        ({"error_type": "Value*", "attempts": "2"}, True),
        ({"error_type": "Value*", "attempts": "1"}, False),
        ({"error_message": "*thing"}, True),
        ({"replayed": "no"}, True),
        ({"replayed": "yes"}, False),
    ],
)
def test_a_dead_letter_must_match_the_patterns_of_all_fields(patterns: dict[str, str], *, fits: bool) -> None:
    """The patterns are like those for file names. Case matters."""
    assert matches(dead_letter().fields(replayed=False), patterns.items()) is fits


@pytest.mark.parametrize(
    ("patterns", "fits"),
    [
        ([("error_type", "KeyError"), ("error_type", "ValueError")], True),
        ([("error_type", "ValueError"), ("error_type", "KeyError")], True),
        ([("error_type", "KeyError"), ("error_type", "TypeError")], False),
        ([("error_type", "KeyError"), ("error_type", "ValueError"), ("attempts", "9")], False),
    ],
)
def test_patterns_for_the_same_field_are_alternatives(patterns: list[tuple[str, str]], *, fits: bool) -> None:
    assert matches(dead_letter().fields(replayed=False), patterns) is fits


def test_the_content_is_the_request_with_the_users_headers() -> None:
    """The worker's headers are left out. A value that is not a request has no payload."""
    request = dead_letter(value=encode_request(7, "payload")).content(decode_request)

    assert request == {"sequence": 7, "payload": "payload", "headers": [["trace", "t1"], ["trace", None]]}
    assert dead_letter(value=b"\xff").content(decode_request) == {**request, "sequence": None, "payload": None}


def test_a_replay_goes_to_the_partition_of_the_origin() -> None:
    """Another producer may choose another partition for the same key. The replay must keep the order by key."""
    assert dead_letter().request().partition == 3
    assert dead_letter(headers=(("x-origin-topic", b"requests"),)).request().partition is None


def test_dead_letters_of_a_topic_that_was_created_again_are_different() -> None:
    """The same offset at another time is another dead letter."""
    assert dead_letter(time=1_000).mark != dead_letter(time=2_000).mark


def test_a_replay_leaves_out_dead_letters_that_were_replayed_or_do_not_match() -> None:
    """The replay chooses the first of the others, up to the limit. It names those that cannot be replayed."""
    other = dead_letter(1, headers=(*HEADERS[:-2], ("x-error-type", b"KeyError")))
    foreign = dead_letter(2, headers=())
    dropped = dead_letter(3, headers=(*HEADERS, ("x-value-dropped", b"too large for this topic")))
    dead_letters = [dead_letter(0), other, dropped, dead_letter(4), dead_letter(5), dead_letter(6), dead_letter(7)]
    memory = Journal(recorded=("requests.dlq/1/0",), found=("requests.dlq/1/4",))

    chosen = plan([*dead_letters, foreign], memory, [("error_type", "ValueError")], limit=2)

    assert chosen.chosen == {dead_letter(5).mark, dead_letter(6).mark}
    assert chosen.topics == {"requests"}
    assert chosen.replayed == 2
    assert chosen.unrecorded == [dead_letter(4).mark]
    assert list(chosen.obstacles) == ["requests.dlq/1/3"]


def test_a_record_without_an_origin_cannot_be_replayed() -> None:
    """The origin says which topic the request belongs to. A foreign record has none."""
    chosen = plan([dead_letter(headers=())], Journal(), [], limit=None)

    assert not chosen.chosen
    assert chosen.obstacles == {"requests.dlq/1/5": "it has no x-origin-topic header"}
