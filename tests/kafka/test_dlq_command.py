"""``worker dlq`` against a real broker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.kafka.support.tool import Tool, dead_letter
from worker.cli.access import Access
from worker.cli.dead_letters import read_dead_letters
from worker.cli.journal import Journal
from worker.cli.replay import plan
from worker.codec import Response, encode_request
from worker.kafka.sender import Outgoing, deliver

if TYPE_CHECKING:
    from tests.kafka_broker import Broker

pytestmark = pytest.mark.kafka


@pytest.fixture
def tool(broker: Broker) -> Tool:
    return Tool(broker)


@pytest.fixture
def dead_letters(tool: Tool) -> list[Outgoing]:
    """Send six dead letters, two of them with another error type, and return them."""
    sent = [dead_letter(tool, number, "KeyError" if number in {2, 4} else "ValueError") for number in range(6)]
    deliver(tool.sender, sent)
    return sent


@pytest.mark.usefixtures("dead_letters")
def test_dead_letters_are_listed(tool: Tool) -> None:
    """The list has the headers of the contract, and can be filtered. It is JSON, or a table that keeps brackets."""
    rows = [json.loads(line) for line in tool("dlq", "list", "--json", "--match", "error_type=Key*").out.splitlines()]
    table = tool("dlq", "list", "--limit", "2")

    assert [(row["origin_topic"], row["origin_partition"], row["attempts"]) for row in rows] == [
        (tool.requests, 1, 3)
    ] * 2
    assert sorted((row["origin_offset"], row["key"]) for row in rows) == [(2, "k2"), (4, "k4")]
    assert not any(row["replayed"] for row in rows)
    assert "ValueError: [bold]no" in table.out
    assert f"2 of 6 dead letters in {tool.dead_letters}" in table.err


@pytest.mark.usefixtures("dead_letters")
def test_a_replay_sends_each_dead_letter_once(tool: Tool) -> None:
    """Three replays send the matching ones, the others, and none. Only the worker's headers are not sent again."""
    first = tool("dlq", "replay", "--match", "error_type=KeyError", "--yes")
    second = tool("dlq", "replay", "--yes")
    third = tool("dlq", "replay", "--yes")

    assert [done.code for done in (first, second, third)] == [0, 0, 0]
    assert "2 of 2 requests sent" in first.err
    assert "4 of 4 requests sent" in second.err
    assert "0 dead letters to replay, 6 were replayed before" in third.err
    sent = tool.records(tool.requests)
    assert sorted((record.key, record.value) for record in sent) == [
        (f"k{n}".encode(), f"value {n}".encode()) for n in range(6)
    ]
    places = {(r.key, f"{tool.dead_letters}/{r.partition.number}/{r.offset}") for r in tool.records(tool.dead_letters)}
    assert {(r.key, (dict(r.headers)["x-replayed-from"] or b"").decode()) for r in sent} == places
    assert {r.headers[:-1] for r in sent} == {(("trace", b"\xff\x00"),)}
    listed = [json.loads(line) for line in tool("dlq", "list", "--json").out.splitlines()]
    assert all(row["replayed"] for row in listed)


@pytest.mark.usefixtures("dead_letters")
def test_a_replay_keeps_the_partition_of_the_origin(tool: Tool) -> None:
    """The partitioner of the first producer does not matter."""
    tool("dlq", "replay", "--yes")

    assert {record.partition.number for record in tool.records(tool.requests)} == {1}


@pytest.mark.usefixtures("dead_letters")
def test_dead_letters_are_filtered_by_alternatives_and_by_replay(tool: Tool) -> None:
    """Patterns for one field are alternatives. Replayed dead letters can be left out, and ``status`` counts them."""
    either = tool("dlq", "list", "--match", "error_type=KeyError", "--match", "error_type=Value*")
    tool("dlq", "replay", "--match", "error_type=KeyError", "--yes")
    rest = tool("dlq", "list", "--json", "--match", "replayed=no")

    assert f"6 of 6 dead letters in {tool.dead_letters}" in either.err
    assert {json.loads(line)["error_type"] for line in rest.out.splitlines()} == {"ValueError"}
    assert json.loads(tool("status", "--json").out)["dead_letters"]["replayed"] == 2
    assert f"{tool.dead_letters}: 6, 2 replayed" in tool("status").out


def test_a_dead_letter_is_shown_with_its_request_and_the_traceback_of_its_answer(tool: Tool) -> None:
    """It is found by origin or by a filter, and shown as text or JSON. The answer of another request is not used."""
    value = encode_request(7, '{"a": 1}')
    deliver(tool.sender, [dead_letter(tool, number)._replace(value=value) for number in (4, 5)])
    for offset, text in ((4, "Traceback of another"), (5, "Traceback of this one")):
        answer = Response(sequence=7)
        answer.origin.topic, answer.origin.partition, answer.origin.offset = tool.requests, 1, offset
        answer.error.traceback = text
        deliver(tool.sender, [Outgoing(tool.answers, b"k", answer.SerializeToString())])

    shown = tool("dlq", "show", f"{tool.requests}/1/5")
    row = json.loads(tool("dlq", "show", "--match", "key=k5", "--json").out)
    missing = tool("dlq", "show", f"{tool.requests}/1/6")

    assert (shown.code, shown.err) == (0, "1 dead letter shown\n")
    assert "Traceback of this one" in shown.out
    assert '{"a": 1}' in shown.out
    assert (row["sequence"], row["payload"], row["traceback"]) == (7, '{"a": 1}', "Traceback of this one")
    assert row["headers"] == [["trace", "\ufffd\x00"]]
    assert (missing.code, missing.err) == (1, f"no such dead letter in {tool.dead_letters}\n")
    assert tool("dlq", "show").code == 2


@pytest.mark.usefixtures("dead_letters")
def test_a_dry_run_sends_nothing(tool: Tool) -> None:
    """It prints how many dead letters it would replay, and creates no topic."""
    done = tool("dlq", "replay", "--dry-run", "--limit", "4")

    assert (done.code, set(tool.ends(tool.requests).values())) == (0, {0})
    assert "4 dead letters to replay" in done.err
    assert tool.cluster.find(f"{tool.dead_letters}.replayed") is None


@pytest.mark.usefixtures("dead_letters")
def test_requests_of_a_replay_that_died_are_not_sent_again(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay that died before it recorded its requests is detected by these requests."""
    for name, value in tool.environment.items():
        monkeypatch.setenv(name, value)
    access = Access()
    chosen = plan(read_dead_letters(access), Journal(access), [], limit=2)
    Journal(access).begin(tool.sender, chosen.topics, [])
    deliver(
        tool.sender,
        [dead_letter.request() for dead_letter in read_dead_letters(access) if dead_letter.mark in chosen.chosen],
    )

    again = tool("dlq", "replay", "--yes")

    assert "4 of 4 requests sent" in again.err
    assert sorted(record.key or b"" for record in tool.records(tool.requests)) == [f"k{n}".encode() for n in range(6)]
    assert "0 dead letters to replay, 6 were replayed before" in tool("dlq", "replay").err


def test_dead_letters_that_cannot_be_replayed_are_named(tool: Tool) -> None:
    """A record that is not a dead letter is not sent. The dead letters are."""
    deliver(tool.sender, [Outgoing(tool.dead_letters, b"k", b"foreign"), dead_letter(tool, 1)])

    done = tool("dlq", "replay", "--yes")

    assert "cannot be replayed: it has no x-origin-topic header" in done.err
    assert [record.key for record in tool.records(tool.requests)] == [b"k1"]


def test_a_missing_dead_letter_topic_has_no_dead_letters(tool: Tool) -> None:
    """Before the first dead letter, ``list`` and ``replay`` have nothing to do, and exit with 0."""
    for command in ("list", "replay"):
        assert tool("dlq", command, KAFKA_DEAD_LETTER_TOPIC="not-yet").code == 0
