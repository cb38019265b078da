"""An independent check of a run's history against the definitions. ``python -m chaos.checker HISTORY``.

It shares no code with the invariants and knows no faults, so it checks only what no fault excuses:

- Each request has exactly one committed answer with exactly-once, at least one with at-least-once, and at most one with
  at-most-once.
- An answer belongs to a request that was sent.
- A request starts at most ``max_attempts`` times without a good finish. Starts that a drain or a revoked partition
  stopped do not count. Neither does one start that crashed within 0.1 s, because an idle process records a start while
  the task already runs. Nor does a failed attempt that another process made again under the same number, because no
  commit had recorded the failure. If not everything could be committed, nor does an unfinished start that another
  process made again. With at-most-once, a request starts at most once.
- Within a partition or a key, requests first start in the order of their offsets. With at-most-once, this applies to
  each process separately, because a member that was cut off may start late what it had committed. A start after the
  answer ``CANCELLED`` does not count: another process has answered the request, and this one does not know it yet.
- The committed offset of every partition is its end.

Exit code 0: the history is valid. 1: it is invalid. 2: it cannot be read.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from pathlib import Path
from typing import Any

History = list[dict[str, Any]]
USAGE = 2
AT_ONCE = 0.1  # seconds


def read(file: Path) -> History:
    """Read a history. Raise OSError or ValueError if that fails."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def check(history: History) -> list[str]:
    """Return the faults of the history, one line each."""
    (run,) = (line for line in history if line["type"] == "run")
    by_type = {kind: [line for line in history if line["type"] == kind] for kind in _TYPES}
    found = [*_answers(run, by_type), *_attempts(run, by_type), *_order(run, by_type)]
    found += [
        f"partition {line['partition']} is committed up to {line['committed']} of {line['end']}"
        for line in by_type["offset"]
        if line["committed"] != line["end"]
    ]
    return found


_TYPES = ("sent", "resent", "start", "crash", "raise", "end", "stop", "answer", "offset")
_Lines = dict[str, History]


def _where(line: dict[str, Any]) -> str:
    return f"{line['partition']}/{line['offset']}"


def _answers(run: dict[str, Any], lines: _Lines) -> list[str]:
    sent = {_where(line) for line in lines["sent"]}
    counts = Counter(_where(line) for line in lines["answer"])
    found = []
    if run["guarantee"] != "at-most-once":
        found += [f"{one} was sent and has no answer" for one in sorted(sent - counts.keys())]
    if run["guarantee"] != "at-least-once" and not run["rows_exact"]:
        found += [f"{one} has {count} answers" for one, count in sorted(counts.items()) if count > 1]
    # A request whose delivery failed may still be in the topic: one unknown origin for each is possible.
    unknown = sorted(counts.keys() - sent)
    found += [f"{one} was never sent and has an answer" for one in unknown[len(lines["resent"]) :]]
    found += [f"an answer of another topic: {_where(line)}" for line in lines["answer"] if not line["topic_ok"]]
    return found


def _attempts(run: dict[str, Any], lines: _Lines) -> list[str]:
    starts = Counter(_where(line) for line in lines["start"])
    if run["guarantee"] == "at-most-once":
        return [f"{one} started {count} times" for one, count in sorted(starts.items()) if count > 1]
    starts.subtract(Counter(_where(line) for line in (*lines["end"], *lines["stop"])))
    limit = run["max_attempts"]
    starts.subtract(_crashed_at_once(lines))
    starts.subtract(_repeated(lines, also_unfinished=not run["attempts_exact"]))
    return [
        f"{one} started {count} times without a good finish, the limit is {limit}"
        for one, count in sorted(starts.items())
        if count > limit
    ]


def _crashed_at_once(lines: _Lines) -> set[str]:
    began = {(_where(line), line["process"], line["attempt"]): float(line["time"]) for line in lines["start"]}
    return {
        _where(line)
        for line in lines["crash"]
        if float(line["time"]) - began[_where(line), line["process"], line["attempt"]] <= AT_ONCE
    }


def _repeated(lines: _Lines, *, also_unfinished: bool) -> Counter[str]:
    ends = {(_where(line), line["process"], line["attempt"]) for kind in ("end", "stop") for line in lines[kind]}
    raised = {(_where(line), line["process"], line["attempt"]) for line in lines["raise"]}
    newest: dict[str, dict[str, Any]] = {}
    found: Counter[str] = Counter()
    for line in sorted(lines["start"], key=lambda line: float(line["time"])):
        where = _where(line)
        before, newest[where] = newest.get(where), line
        if not before or before["attempt"] != line["attempt"] or before["process"] == line["process"]:
            continue
        start = (where, before["process"], before["attempt"])
        found[where] += start in raised or (also_unfinished and start not in ends)
    return found


def _order(run: dict[str, Any], lines: _Lines) -> list[str]:
    if run["ordering"] == "unordered":
        return []
    keys = {_where(line): line["key"] for line in lines["sent"]}
    alone = run["guarantee"] == "at-most-once"
    cancelled = {_where(line): float(line["cancelled_at"]) for line in lines["answer"] if "cancelled_at" in line}
    started: set[str] = set()
    newest: dict[tuple[object, ...], int] = {}
    found = []
    for line in sorted(lines["start"], key=lambda line: float(line["time"])):
        where = _where(line)
        if where in started or cancelled.get(where, math.inf) < float(line["time"]):
            continue
        started.add(where)
        key = keys.get(where) if run["ordering"] == "key" else None
        group = (line["partition"], key, line["process"] if alone else None)
        if newest.get(group, -1) > line["offset"]:
            found.append(f"{where} first started after {line['partition']}/{newest[group]}")
        newest[group] = max(newest.get(group, -1), line["offset"])
    return found


def main(arguments: list[str]) -> int:
    """Check the history in the arguments, print the result, and return the exit code."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m chaos.checker HISTORY\n")
        return USAGE
    try:
        history = read(Path(arguments[0]))
        found = check(history)
    except (OSError, ValueError, KeyError) as error:
        sys.stderr.write(f"{arguments[0]} is no history of a run: {error}\n")
        return USAGE
    sys.stdout.writelines(f"{line}\n" for line in found)
    sys.stdout.write(f"{len(history)} events, {len(found)} violations\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
