"""Invariants of the pipeline: what it submits, how its commands end, and what its audit finds."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from chaos.messages import of_job
from chaos.requests import TABLE_JOB
from chaos.violation import Violation, violation_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chaos.evidence import Evidence, RecordId

# Exit codes of the contract. With 1, a scheduler gives up.
DONE, DISPROVED, UNREACHABLE = 0, 1, 4
PROVED = "proved", DONE


def table_submitted(evidence: Evidence) -> Iterator[Violation]:
    """Check that the request topic has each row of the table once, and nothing else of its job."""
    found: dict[bytes, list[RecordId]] = defaultdict(list)
    for record, item in evidence.sent.items():
        if of_job(item.key, TABLE_JOB):
            found[item.key].append(record)
    missing = len(evidence.rows.keys() - found.keys())
    if missing:
        yield Violation("table", f"rows that are not in the request topic: {missing}")
    twice = [record for records in found.values() if len(records) > 1 for record in records]
    yield from violation_of("table", "requests of rows that are in the topic more than once", twice)
    sent = evidence.sent
    other = [
        one for records in found.values() for one in records if evidence.rows.get(sent[one].key) != sent[one].value
    ]
    yield from violation_of("table", "requests that are no row of the table", other)


def calls_end_well(evidence: Evidence) -> Iterator[Violation]:
    """Check that a command that was not killed succeeds or, under faults, says that it may be repeated."""
    for one in evidence.calls:
        allowed = {DONE} if one.healed else {DONE, UNREACHABLE}
        if not one.killed and one.code not in allowed:
            when = "without faults" if one.healed else "under faults"
            yield Violation("pipeline", f"{one.command} ended with exit code {one.code} {when}: {one.last[:300]}")


def collected_once(evidence: Evidence) -> Iterator[Violation]:
    """Check that bronze has each committed answer and dead letter once."""
    if not evidence.rows:
        return
    wanted = len(evidence.answers) + len(evidence.dead_letters)
    found, once = len(evidence.collected), len(set(evidence.collected))
    if found != once:
        yield Violation("collected", f"records that are in bronze more than once: {found - once}")
    if once != wanted:
        yield Violation("collected", f"{once} records are in bronze, and {wanted} are in the topics")


def audit_agrees(evidence: Evidence) -> Iterator[Violation]:
    """Check that the audit has the verdict and the counts that follow from the answers."""
    if not evidence.rows:
        return
    if evidence.audit is None:
        yield Violation("audit", "the table was not audited")
        return
    code, verdict, counts = evidence.audit
    counted = _counted(evidence)
    wanted = PROVED if counted["answered"] == counted["planned"] else ("disproved", DISPROVED)
    if (verdict, code) != wanted:
        yield Violation("audit", f"{verdict!r} with exit code {code} instead of {wanted[0]!r} with {wanted[1]}")
    for name, count in counted.items():
        if counts.get(name) != count:
            yield Violation("audit", f"{name}: {counts.get(name)} instead of {count}")


def _counted(evidence: Evidence) -> dict[str, int]:
    """Return the counts that the audit must have. The suite's other requests belong to another job."""
    answers = Counter(answer.key for answer in evidence.answers)
    of_rows = Counter(answers[key] for key in evidence.rows)  # the number of rows by their number of answers
    several = {count: rows for count, rows in of_rows.items() if count > 1}
    dead_letters = Counter(one.key for one in evidence.dead_letters)
    return {
        "planned": len(evidence.rows),
        "answered": of_rows[1],
        "missing": of_rows[0],
        "duplicate": sum(several.values()),
        "duplicate_answers": sum((count - 1) * rows for count, rows in several.items()),
        "dead_letters": sum(dead_letters[key] for key in evidence.rows),
        "unexpected": 0,
        "undecodable": 0,
    }
