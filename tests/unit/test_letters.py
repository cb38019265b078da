"""What is read from a dead letter, and what a replay chooses."""

from __future__ import annotations

import pytest

from worker.cli.letters import Letter
from worker.cli.replay import plan
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


def letter(offset: int = 5, headers: Headers = HEADERS, time: int = 1_000) -> Letter:
    return Letter(Record(Partition("requests.dlq", 1), offset, b"key", b"value", headers, time))


class Memory:
    """A journal that knows these places, and of some only because it looked for them."""

    def __init__(self, recorded: tuple[str, ...] = (), found: tuple[str, ...] = ()) -> None:
        self.recorded, self.found = recorded, found

    def knows(self, letter: Letter) -> bool:
        return letter.place in self.recorded or self.lacks(letter)

    def lacks(self, letter: Letter) -> bool:
        return letter.place in self.found


def test_the_request_is_sent_again_as_it_was() -> None:
    """Key, value and the user's headers are kept, the worker's are left out, and the letter is named."""
    request = letter().request()

    assert (request.topic, request.key, request.value) == ("requests", b"key", b"value")
    assert request.headers == (("trace", b"t1"), ("trace", None), ("x-replayed-from", b"requests.dlq/1/5"))


def test_a_second_replay_names_only_the_second_letter() -> None:
    """The header of an earlier replay does not pile up."""
    again = letter(headers=(("x-replayed-from", b"requests.dlq/1/2"), *HEADERS))

    assert again.request().headers[-1:] == (("x-replayed-from", b"requests.dlq/1/5"),)
    assert [name for name, _ in again.request().headers].count("x-replayed-from") == 1


def test_fields_are_text_by_name() -> None:
    """What is listed is what the headers say."""
    assert letter().fields() == {
        "time_ms": 1_000,
        "origin_topic": "requests",
        "origin_partition": 3,
        "origin_offset": 17,
        "attempts": 2,
        "error_type": "ValueError",
        "error_message": "no [such] thing",
        "key": "key",
        "place": "requests.dlq/1/5",
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
    ],
)
def test_all_patterns_must_fit(patterns: dict[str, str], *, fits: bool) -> None:
    """Patterns are those of file names, with upper and lower case told apart."""
    assert letter().matches(patterns.items()) is fits


def test_letters_of_a_topic_made_anew_are_other_letters() -> None:
    """The same offset at another time is not the same letter."""
    assert letter(time=1_000).mark != letter(time=2_000).mark


def test_a_replay_leaves_out_what_was_replayed_or_does_not_match() -> None:
    """Chosen are the first letters that match and were not replayed; letters that cannot be sent again are named."""
    other = letter(1, headers=(*HEADERS[:-2], ("x-error-type", b"KeyError")))
    foreign = letter(2, headers=())
    dropped = letter(3, headers=(*HEADERS, ("x-value-dropped", b"too large for this topic")))
    letters = [letter(0), other, dropped, letter(4), letter(5), letter(6), letter(7)]
    memory = Memory(recorded=("requests.dlq/1/0",), found=("requests.dlq/1/4",))

    chosen = plan([*letters, foreign], memory, [("error_type", "ValueError")], limit=2)

    assert chosen.chosen == {letter(5).mark, letter(6).mark}
    assert chosen.topics == {"requests"}
    assert chosen.replayed == 2
    assert chosen.lacking == [letter(4).mark]
    assert list(chosen.obstacles) == ["requests.dlq/1/3"]


def test_records_that_are_no_dead_letters_of_ours_cannot_be_replayed() -> None:
    """Without its origin a record has nowhere to go."""
    chosen = plan([letter(headers=())], Memory(), [], limit=None)

    assert not chosen.chosen
    assert chosen.obstacles == {"requests.dlq/1/5": "it has no x-origin-topic header"}
