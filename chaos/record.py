"""The record of all runs: JSON lines in the repository. Lines are appended, never changed or removed.

Each run has two lines with the same ``id``. The first one, with the outcome ``begun``, is written before the run: a run
that was killed has no other line and counts as not passed. The second one has the figures of the run, and its
violations or its error. Both have the options of the run, ``outcome``, ``engine`` (the git tree hashes of ``worker/``
and ``proto/``), ``pipeline`` (that of ``pipeline/``) and ``suite`` (that of the code in ``chaos/`` that runs and
judges; before 2026-11-28 also that of the pages and the mutants, and before 2026-11-27 of the whole folder, this
record included). Runs before 2026-11-23 have one line, without an ``id``.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import uuid
from collections import Counter
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any

import confluent_kafka as ck

from chaos import code_hash
from chaos.answer_invariants import answered_twice, unanswered
from chaos.fault_windows import never_excused
from chaos.node import VERSION
from chaos.procutil import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from chaos.evidence import Evidence
    from chaos.options import Options
    from chaos.run import Result

FILE = ROOT / "chaos/record.jsonl"
BEGUN, PASSED, BROKEN, CRASHED = "begun", "passed", "broken", "crashed"
_KILLED = "killed: the run has no end in the record"
HASH_DIGITS = 12
_PAGES = ("promises.py", "report.py", "mutants.py", "mutant_list.py")  # they neither run nor judge anything
Line = dict[str, Any]


def of_beginning(options: Options) -> Line:
    """Return the first line of a run."""
    return {**_head(options, BEGUN), "id": uuid.uuid4().hex, "violations": []}


def of_result(result: Result) -> Line:
    """Return the line of a run that reached its end."""
    evidence = result.evidence
    starts = evidence.starts
    kinds = Counter(item.kind for item in evidence.sent.values())
    return {
        **_head(result.plan.options, BROKEN if result.violations else PASSED),
        "happened": dict(sorted(result.faults.items())),
        "skipped": result.skipped,
        "requests": len(evidence.sent),
        "odd": {kind: count for kind, count in sorted(kinds.items()) if kind not in ("sleep", "spin")},
        "lost": len(unanswered(evidence)),
        "repeated": len(answered_twice(evidence)),
        "started_again": sum(len(entries) > 1 for entries in starts.values()),
        "most_starts": max(map(len, starts.values()), default=0),
        "most_bad_starts": max(Counter(one.record for one in evidence.bad_starts).values(), default=0),
        "never_excused": never_excused(evidence),
        "dead_letters": len({dead_letter.record for dead_letter in evidence.dead_letters}),
        "used": used(evidence),
        "most_memory": max((sample.pss for sample in evidence.samples), default=0),
        "exits": dict(sorted(Counter(str(one.code) for one in evidence.exits).items())),
        "violations": [str(violation) for violation in result.violations],
        "took": round(result.seconds),
        "cpu_pressure": round(100 * result.cpu_pressure),
    }


def used(evidence: Evidence) -> dict[str, int]:
    """Return how often the features of the run were used."""
    found = {
        **evidence.logged,
        "wanted cancelled": len(evidence.cancelled),
        "answered cancelled": sum(answer.outcome == "CANCELLED" for answer in evidence.answers),
        "checkpoints": sum(entry.event == "checkpoint" for entry in evidence.journal),
        "resumed": sum(entry.event == "resume" and entry.step > 0 for entry in evidence.journal),
        "follow-ups": len(evidence.follow_ups),
        "stored twice": len(evidence.copies),
        "futures": sum(bool(one.outcome) for one in evidence.futures.values()),
        "calls of the pipeline": len(evidence.calls),
        "calls of the pipeline that were killed": sum(one.killed for one in evidence.calls),
        "found by id": sum(bool(one.outcome) for one in evidence.found_again.values()),
    }
    return {name: count for name, count in found.items() if count}


def of_crash(options: Options, error: str, seconds: float) -> Line:
    """Return the line of a run that raised an error. It counts as broken."""
    return {**_head(options, CRASHED), "violations": [f"crashed: {error}"], "took": round(seconds)}


def _head(options: Options, outcome: str) -> Line:
    return {
        **options.as_json(),
        "outcome": outcome,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        "versions": versions(),
    }


def identity() -> Line:
    """Return the fields that identify the code of a run. Raise RuntimeError outside of a git checkout."""
    return {
        "engine": "+".join(code_hash.tree_hash(folder)[:HASH_DIGITS] for folder in ("worker", "proto")),
        "pipeline": code_hash.tree_hash("pipeline")[:HASH_DIGITS],
        "suite": code_hash.tree_hash("chaos", ("*.py", "*.c"), without=_PAGES)[:HASH_DIGITS],
        "commit": code_hash.commit(),
    }


def versions() -> str:
    """Return the versions of the programs in the run."""
    return (
        f"Python {platform.python_version()}, confluent-kafka {ck.__version__}, librdkafka {ck.libversion()[0]}, "
        f"Kafka {VERSION}, {len(os.sched_getaffinity(0))} cores"
    )


@contextlib.contextmanager
def locked(file: Path | None = None) -> Iterator[IO[str]]:
    """Yield the record, open for appending. Other processes that use this function wait meanwhile."""
    with (file or FILE).open("a", encoding="utf-8") as record:
        fcntl.flock(record, fcntl.LOCK_EX)
        yield record


def append(line: Line, file: Path | None = None) -> None:
    """Append a line. Other runs may end at the same time."""
    with locked(file) as record:
        record.write(json.dumps(line) + "\n")


def load(file: Path | None = None) -> list[Line]:
    """Return all lines, oldest first."""
    return [json.loads(line) for line in (file or FILE).read_text(encoding="utf-8").splitlines()]


def runs(lines: Sequence[Line]) -> list[Line]:
    """Return one line for each run, in the order of their ends. A run without an end counts as crashed."""
    ended = {line["id"] for line in lines if line["outcome"] != BEGUN and "id" in line}
    killed = {"outcome": CRASHED, "violations": [_KILLED]}
    return [
        {**line, **killed} if line["outcome"] == BEGUN else line
        for line in lines
        if line["outcome"] != BEGUN or line["id"] not in ended
    ]


def of_newest(lines: Sequence[Line], *names: str) -> list[Line]:
    """Return the runs that have these fields in common with the last one."""
    return [line for line in lines if all(line.get(name) == lines[-1].get(name) for name in names)]


def total_faults(line: Line) -> int:
    """Return the number of faults injected into a run; 0 for a crashed run, which has no figures."""
    return sum(line.get("happened", {}).values())


def has_feature(line: Line, name: str) -> bool:
    """Return whether a run used this feature. Runs from before there were features used none."""
    return name in line.get("features", "").split("+")
