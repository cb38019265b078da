"""The evidence of a good run. Tests remove a part of it, or add a wrong part."""

from __future__ import annotations

from chaos import oracle
from chaos.evidence import Answer, DeadLetter, Evidence, Exit, JournalEntry
from chaos.options import Options
from chaos.requests import Item

TOPIC = "requests"


def item(number: int, kind: str = "sleep", key: bytes | None = None) -> Item:
    return Item(number, 0.0, kind, key or f"r{number}".encode(), None if kind == "null" else b"value")


def answer(offset: int, outcome: str = "OK", at: float = 0.0) -> Answer:
    sequence = 0 if outcome == "DEAD_LETTERED" else offset
    return Answer(TOPIC, (0, offset), outcome, sequence, f"r{offset}".encode(), at or offset + 0.5, "r0")


def entry(event: str, offset: int, time: float, attempt: int = 1, pid: int = 9, replica: str = "r0") -> JournalEntry:
    return JournalEntry(event, replica, pid, (0, offset), attempt, time)


def good(guarantee: str = "exactly-once", ordering: str = "partition") -> Evidence:
    """Return a run with three tasks and one dead letter."""
    tasks = range(3)
    sent = {**{(0, n): item(n) for n in tasks}, (0, 3): item(3, "null")}
    return Evidence(
        options=Options(1, guarantee, ordering),
        topic=TOPIC,
        sent=sent,
        sent_at=dict.fromkeys(sent, 0.0),
        answers=[*map(answer, tasks), answer(3, "DEAD_LETTERED")],
        dead_letters=[DeadLetter((0, 3), b"r3", None)],
        journal=[entry(event, n, n + later) for n in tasks for event, later in (("start", 0.0), ("end", 0.3))],
        committed={0: 4},
        ends={0: 4},
        exits=[Exit("r0", 0, sigterms=1)],
    )


def broken(evidence: Evidence) -> set[str]:
    """Return the invariants that are broken."""
    return {violation.invariant for violation in oracle.judge(evidence)}
