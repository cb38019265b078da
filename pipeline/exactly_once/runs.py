"""The runs of a job that were submitted to a request topic, as records beside those of the progress log.

The key is ``submit/<job>/<topic id>/run/<run>``, and the value is a JSON object. Requests that an earlier version
sent belong to a run without a name.
"""

from __future__ import annotations

import json
import operator
from typing import TYPE_CHECKING, NamedTuple

from pipeline.errors import JobError
from pipeline.exactly_once.turns import write_record

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from pipeline.exactly_once.progress_log import ProgressLog

_PARTITION = 0  # the same for all runs, so that those of a job have an order


class Announced(NamedTuple):
    """A submitted run. ``id`` is empty if a version that did not name runs submitted it.

    ``topic_ids`` and ``ends`` describe the topics of its answers before its first request was sent: ids by name, and
    offsets by name and partition.
    """

    id: str
    rows: int | None = None
    created: str = ""
    topic_ids: Mapping[str, str] = {}
    ends: Mapping[str, Mapping[int, int]] = {}

    def __str__(self) -> str:
        rows = "" if self.rows is None else f" ({self.rows} requests, planned {self.created})"
        return f"run {self.id}{rows}" if self.id else "a run that an earlier version of pipeline submitted"


def submit_name(job: str, topic_id: str, run: str) -> str:
    """Return the name of a submit's progress log. The topic's id is part of it: a recreated topic has no requests."""
    return f"submit/{job}/{topic_id}/{run}" if run else f"submit/{job}/{topic_id}"


def announced(log: ProgressLog, job: str, topic_id: str, *, all_of_them: bool = False) -> list[Announced]:
    """Return the runs of the job that were submitted to the topic, oldest first.

    ``all_of_them`` waits for open transactions, which hide the announcements behind them.
    """
    prefix = f"submit/{job}/{topic_id}/"
    runs: dict[str, tuple[int, Announced | None]] = {}
    for message in log.messages(_PARTITION if all_of_them else None):
        key: Any = message.key()
        rest = key.decode(errors="replace").removeprefix(prefix) if key and key.startswith(prefix.encode()) else ""
        kind, _, run = rest.partition("/")
        if kind == "run":
            runs[run] = (message.offset() or 0, _parse(run, message.value()))
        elif kind.isdigit():
            runs[""] = (-1, Announced(""))
    found = [(offset, run) for offset, run in runs.values() if run is not None]
    return [run for _, run in sorted(found, key=operator.itemgetter(0))]


def _parse(run: str, value: Any) -> Announced | None:
    if not value:
        return None
    content: Mapping[str, Any] = json.loads(value)
    ends = {
        topic: {int(partition): offset for partition, offset in offsets.items()}
        for topic, offsets in content["ends"].items()
    }
    return Announced(run, content["rows"], content["created"], content["topic_ids"], ends)


def announce(log: ProgressLog, job: str, topic_id: str, run: Announced, accepted: frozenset[str]) -> None:
    """Record that the run is being submitted. Raise JobError if a run that is not ``accepted`` came first."""
    key = f"submit/{job}/{topic_id}/run/{run.id}".encode()
    content = run._asdict()
    del content["id"]
    write_record(log, key, json.dumps(content).encode())
    for other in announced(log, job, topic_id, all_of_them=True):
        if other.id == run.id:
            return
        if other.id not in accepted:
            write_record(log, key, None)
            raise JobError(
                f"job {job!r} is being submitted as {other} at the same time: give one of them another --job"
            )
