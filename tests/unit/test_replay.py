"""The content of a dead letter, and the choice of a replay."""

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


def test_the_request_is_sent_again_as_it_was() -> None:
    """Key, value and the user's headers are kept, the worker's are left out, and the dead letter is named."""
    request = dead_letter().request()

    assert (request.topic, request.key, request.value) == ("requests", b"key", b"value")
    assert request.headers == (("trace", b"t1"), ("trace", None), ("x-replayed-from", b"requests.dlq/1/5"))


def test_a_second_replay_names_only_the_second_dead_letter() -> None:
    """The header of an earlier replay does not pile up."""
    again = dead_letter(headers=(("x-replayed-from", b"requests.dlq/1/2"), *HEADERS))

    assert again.request().headers[-1:] == (("x-replayed-from", b"requests.dlq/1/5"),)
    assert [name for name, _ in again.request().headers].count("x-replayed-from") == 1


def test_fields_are_text_by_name() -> None:
    """What is listed is what the headers say."""
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
def test_all_fields_must_fit(patterns: dict[str, str], *, fits: bool) -> None:
    """Patterns are those of file names, and case matters."""
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


def test_the_content_is_the_request_with_its_own_headers() -> None:
    """The headers of the worker are left out; bytes that are no request have no payload."""
    request = dead_letter(value=encode_request(7, "payload")).content(decode_request)

    assert request == {"sequence": 7, "payload": "payload", "headers": [["trace", "t1"], ["trace", None]]}
    assert dead_letter(value=b"\xff").content(decode_request) == {**request, "sequence": None, "payload": None}


def test_a_replay_goes_to_the_partition_of_the_origin() -> None:
    """Another producer may place the same key elsewhere, and the order by key must hold."""
    assert dead_letter().request().partition == 3
    assert dead_letter(headers=(("x-origin-topic", b"requests"),)).request().partition is None


def test_dead_letters_of_a_topic_that_was_created_again_are_different_ones() -> None:
    """The same offset at another time is another dead letter."""
    assert dead_letter(time=1_000).mark != dead_letter(time=2_000).mark


def test_a_replay_leaves_out_what_was_replayed_or_does_not_match() -> None:
    """The first that match and were not replayed are chosen; those that cannot be replayed are named."""
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


def test_records_that_are_no_dead_letters_of_ours_cannot_be_replayed() -> None:
    """Without its origin a record has nowhere to go."""
    chosen = plan([dead_letter(headers=())], Journal(), [], limit=None)

    assert not chosen.chosen
    assert chosen.obstacles == {"requests.dlq/1/5": "it has no x-origin-topic header"}
