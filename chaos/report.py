"""What runs came to: for the terminal, kept as records, and written as docs/reliability.md."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck

from chaos import oracle
from chaos.faults import KINDS
from chaos.node import VERSION
from chaos.own import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from chaos.run import Result

RECORDS = ROOT / "chaos/results.jsonl"
DOCUMENT = ROOT / "docs/reliability.md"
METHOD = ROOT / "chaos/method.md"
FINDINGS = ROOT / "chaos/findings.md"
_SAME = ("seed", "guarantee", "ordering", "protocol", "brokers", "mix", "load", "store", "session", "gap")


def record(result: Result) -> dict[str, Any]:
    """A run in a line."""
    evidence = result.evidence
    starts = evidence.starts
    kinds = Counter(item.kind for item in evidence.sent.values())
    return {
        **result.plan.options.as_json(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        "versions": versions(),
        "worker": code(),
        "happened": dict(sorted(result.faults.items())),
        "requests": len(evidence.sent),
        "odd": {kind: count for kind, count in sorted(kinds.items()) if kind not in ("nap", "spin")},
        "lost": len(oracle.lost(evidence)),
        "repeated": len(oracle.repeated(evidence)),
        "started_again": sum(len(marks) > 1 for marks in starts.values()),
        "most_starts": max(map(len, starts.values()), default=0),
        "letters": len({letter.place for letter in evidence.letters}),
        "most_memory": max((sample.pss for sample in evidence.samples), default=0),
        "exits": dict(sorted(Counter(str(one.code) for one in evidence.exits).items())),
        "violations": [str(violation) for violation in result.violations],
        "took": round(result.seconds),
    }


def versions() -> str:
    """What was running."""
    return (
        f"Python {platform.python_version()}, confluent-kafka {ck.__version__}, librdkafka {ck.libversion()[0]}, "
        f"Kafka {VERSION}, {len(os.sched_getaffinity(0))} cores"
    )


def code() -> str:
    """Which worker it was: what its files come to."""
    digest = hashlib.sha256()
    for file in sorted((ROOT / "worker").rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:8]


def told(line: dict[str, Any]) -> str:
    """A record for the terminal."""
    verdict = "HELD" if not line["violations"] else "BROKEN"
    return (
        f"{verdict}  {sum(line['happened'].values())} faults, {line['requests']} requests: {line['lost']} lost, "
        f"{line['repeated']} answered twice, {line['started_again']} started again, {line['letters']} dead letters, "
        f"{line['most_memory'] / 2**20:.0f} MB at most, {line['took']} s"
    )


# -- records


def keep(lines: Iterable[dict[str, Any]]) -> None:
    """Add records; a run of the same seed and kind takes the place of the former."""
    with RECORDS.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # other runs may end at the same time
        kept = {_identity(line): line for line in [*load(), *lines]}
        file.truncate(0)
        file.writelines(json.dumps(line) + "\n" for line in kept.values())


def load() -> list[dict[str, Any]]:
    """All records."""
    if not RECORDS.exists():
        return []
    return [json.loads(line) for line in RECORDS.read_text(encoding="utf-8").splitlines()]


def _identity(line: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(line[name] for name in _SAME)


# -- the document


def document(lines: Sequence[dict[str, Any]]) -> str:
    """docs/reliability.md."""
    happened: Counter[str] = Counter()
    for line in lines:
        happened.update(line["happened"])
    broken = [line for line in lines if line["violations"]]
    requests = sum(line["requests"] for line in lines)
    total = f"{sum(happened.values()):,} faults in {len(lines)} runs, {requests:,} requests"
    where = "; ".join(sorted({line["versions"] for line in lines}))
    parts = [
        "# Reliability\n\nWritten by `scripts/chaos --write`; change nothing here by hand.\n",
        f"**{total}: runs with a broken law: {len(broken)}.** {where}.\n",
        _totals(lines),
        _table(lines),
        *(f"- seed {line['seed']}, {line['guarantee']}: {text}" for line in broken for text in line["violations"]),
        FINDINGS.read_text(encoding="utf-8"),
        METHOD.read_text(encoding="utf-8"),
        _faults(happened),
    ]
    return "\n".join(parts)


def _totals(lines: Sequence[dict[str, Any]]) -> str:
    rows = ["| guarantee | runs | faults | requests | lost | answered twice | started again |", "|---|" + "---:|" * 6]
    for guarantee in ("exactly-once", "at-least-once", "at-most-once"):
        of = [line for line in lines if line["guarantee"] == guarantee]
        sums = [sum(line[name] for line in of) for name in ("requests", "lost", "repeated", "started_again")]
        faults = sum(sum(line["happened"].values()) for line in of)
        rows.append(f"| {guarantee} | {len(of)} | {' | '.join(f'{n:,}' for n in (faults, *sums))} |")
    return "\n".join([*rows, ""])


def _table(lines: Sequence[dict[str, Any]]) -> str:
    names = ("seed", "guarantee", "ordering", "protocol", "brokers", "mix", "load", "store", "session", "gap")
    rows = [
        "## Runs\n",
        f"| {' | '.join(names)} | faults | requests | lost | twice | again | letters | MB | worker | verdict |",
        "|" + "---|" * len(names) + "---:|" * 7 + "---|---|",
    ]
    for line in sorted(lines, key=lambda line: (line["guarantee"], line["seed"])):
        figures = [sum(line["happened"].values())]
        figures += [line[name] for name in ("requests", "lost", "repeated", "started_again", "letters")]
        figures.append(round(line["most_memory"] / 2**20))
        what = " | ".join(str(line[name] or "-") for name in names)
        verdict = "broken" if line["violations"] else "held"
        rows.append(f"| {what} | {' | '.join(map(str, figures))} | {line['worker']} | {verdict} |")
    return "\n".join([*rows, ""])


def _faults(happened: Counter[str]) -> str:
    rows = ["## Faults\n", "| fault | times | what |", "|---|---:|---|"]
    rows += [f"| {kind.name} | {happened[kind.name]} | {kind.meaning} |" for kind in KINDS]
    return "\n".join([*rows, ""])
