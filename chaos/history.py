"""The history of a run as JSON lines: confirmed requests, journal entries, and committed answers and offsets.

``chaos.checker`` reads it. Each line has a ``type``: ``run``, ``sent``, ``start``, ``end``, ``raise``, ``crash``,
``stop``, ``resume``, ``checkpoint``, ``answer`` or ``offset``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chaos.evidence import Evidence


def write(evidence: Evidence, file: Path) -> None:
    """Write the history of a run."""
    with file.open("w", encoding="utf-8") as lines:
        lines.writelines(json.dumps(line) + "\n" for line in rows(evidence))


def rows(evidence: Evidence) -> Iterator[dict[str, Any]]:
    """Yield the lines of the history."""
    options = evidence.options
    yield {
        "type": "run",
        "guarantee": options.guarantee,
        "ordering": options.ordering,
        "max_attempts": options.max_attempts,
        "attempts_exact": not any(one.blocks for one in evidence.fault_windows),  # every commit could succeed at once
        "rows_exact": bool(options.store),  # a store makes rows exact, and answers at-least-once
    }
    for (partition, offset), item in evidence.sent.items():
        key = item.key.decode("latin-1")
        yield {"type": "sent", "partition": partition, "offset": offset, "key": key, "kind": item.kind}
    for item in evidence.resent:
        yield {"type": "resent", "sequence": item.sequence}
    for entry in evidence.journal:
        partition, offset = entry.record
        where = {"partition": partition, "offset": offset, "process": entry.pid, "attempt": entry.attempt}
        yield {"type": entry.event, **where, "time": entry.time}
    for answer in evidence.answers:
        partition, offset = answer.record
        where = {"partition": partition, "offset": offset}
        cancelled = {"cancelled_at": answer.at} if answer.outcome == "CANCELLED" else {}
        yield {"type": "answer", **where, "topic_ok": answer.topic == evidence.topic, **cancelled}
    for partition, end in evidence.ends.items():
        committed = evidence.committed.get(partition)
        yield {"type": "offset", "partition": partition, "committed": committed, "end": end}
