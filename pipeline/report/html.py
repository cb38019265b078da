"""The content of the HTML report. ``page.html.j2`` has its layout."""

from __future__ import annotations

import base64
import functools
import time
from typing import TYPE_CHECKING, Any

import jinja2

from pipeline.audit.result import Verdict
from pipeline.report import plots
from pipeline.report.style import STYLE
from pipeline.report.words import duration, moment, percent, rounded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pipeline.audit.result import AuditResult

_SHOWN = 12  # rows of a list; the tables have all of them
_LABELS = {
    "planned": "planned",
    "answered": "answered once",
    "missing": "missing",
    "duplicate": "duplicate",
    "unexpected": "unexpected",
    "undecodable": "undecodable",
    "open": "open",
}
_LISTS = {
    "missing": "Missing: requests without an answer",
    "duplicate": "Duplicate: all answers of requests with more than one",
    "unexpected": "Unexpected: answers to no planned request",
    "undecodable": "Undecodable: records of the ack topic that are not answers",
    "without_parent": "Requests that no answer of the previous stage has sent",
    "follow_ups": "Answers of the previous stage with the wrong number of follow-up requests",
    "open": "Open: records in undecided transactions, or behind one",
    "uncollected": "Committed, but not collected yet",
    "out_of_order": "Out of order: answers behind that of a later request",
    "dead_letters_unanswered": "Dead letters without their answer",
    "dead_letters_lost": "Dead-lettered answers without a dead letter",
    "failed": "Answered by a failure",
}
_RECORDS = {
    "record": {"topic", "partition", "offset"},
    "request's record": {"origin_topic", "origin_partition", "origin_offset"},
}
_LEFT_OUT = {"raw", "timestamp", "request_sequence"}  # columns that do not fit on a page


def page(result: AuditResult) -> str:
    """Return the whole page."""
    summary, reasons = _reasons(result)
    return _template().render(
        style=STYLE,
        job=result.job,
        run=result.run,
        verdict=result.verdict.value,
        summary=summary,
        reasons=reasons,
        tiles=list(_tiles(result)),
        warnings=[*result.warnings, *result.losses],
        evidence=result.evidence,
        pictures=list(_pictures(result)),
        lists=list(_lists(result)),
        proof="the manifest" if result.requests_from == "manifest" else "the records of the request topic",
        made=moment(time.time()),
    )


@functools.cache
def _template() -> jinja2.Template:
    loader = jinja2.PackageLoader("pipeline.report", ".")
    return jinja2.Environment(loader=loader, autoescape=True).get_template("page.html.j2")


def _reasons(result: AuditResult) -> tuple[str, list[str]]:
    """Return the first line of the page, and the reasons below it."""
    counts = result.counts
    requests = f"{counts.planned:,} request{'' if counts.planned == 1 else 's'}"
    if result.verdict is Verdict.PROVED:
        return f"Each of {requests} has exactly one committed answer.", []
    if result.verdict is Verdict.DISPROVED:
        return f"Of {requests}, {counts.answered:,} have exactly one committed answer.", result.violations
    if not result.pending:
        return "No verdict is possible: records may have been lost.", result.violations
    return "No verdict is possible yet.", [*result.pending, *(f"so far: {line}" for line in result.violations)]


def _tiles(result: AuditResult) -> Iterator[dict[str, Any]]:
    for name, label in _LABELS.items():
        count = getattr(result.counts, name)
        kind = "plain" if name == "planned" else "good" if name == "answered" else "bad" if count else "none"
        kind = "open" if name == "open" and count else kind
        share = percent(count, result.counts.planned) if name == "answered" else ""
        yield {"kind": kind, "count": f"{count:,}", "label": label, "share": share}


def _pictures(result: AuditResult) -> Iterator[dict[str, Any]]:
    every = result.sampled_every
    sampled = f" All except work are measured on one request in {every}." if every > 1 else ""
    drawn = [
        ("Answers over time", plots.over_time(result), _span(result), None),
        (
            "How long requests took",
            plots.durations(result),
            f"Accurate to within 1 %.{sampled}",
            _percentiles(result),
        ),
        ("Work by worker", plots.workers(result), _skew(result), None),
        ("Failures by type", plots.errors(result), "", None),
    ]
    for title, png, caption, table in drawn:
        if png is not None:
            yield {"title": title, "png": base64.b64encode(png).decode(), "caption": caption, "table": table}


def _span(result: AuditResult) -> str:
    if result.begin is None or result.end is None:
        return ""
    seconds = result.end - result.begin
    total = sum(result.outcomes.values())
    rate = f", {rounded(total / seconds)} answers a second on average" if seconds >= 1 else ""
    return f"From {moment(result.begin)} to {moment(result.end)} ({duration(seconds)}){rate}."


def _skew(result: AuditResult) -> str:
    work = [worker["work_seconds"] or 0.0 for worker in result.workers]
    cpu = sum(worker["cpu_seconds"] or 0.0 for worker in result.workers)
    if not sum(work):
        return ""
    many = f"{len(work)} worker{'' if len(work) == 1 else 's'}"
    text = f"{many}, {duration(sum(work))} of work, {duration(cpu)} of CPU ({percent(cpu, sum(work))})."
    busiest = f" The busiest worker did {max(work) * len(work) / sum(work):.2f} times the mean."
    return text + busiest if len(work) > 1 else text


def _percentiles(result: AuditResult) -> dict[str, Any] | None:
    names = ["p50", "p90", "p95", "p99", "longest", "mean"]
    rows = [
        [title, *(duration(result.durations[metric][name]) for name in names), f"{result.durations[metric]['count']:,}"]
        for metric, title in plots.TITLES.items()
        if result.durations.get(metric)
    ]
    return {"head": ["", *names, "requests"], "rows": rows} if rows else None


def _lists(result: AuditResult) -> Iterator[dict[str, Any]]:
    for name, title in _LISTS.items():
        entries = [_short(entry) for entry in result.lists.get(name, [])[: _SHOWN + 1]]
        if entries:
            rows = [list(entry.values()) for entry in entries[:_SHOWN]]
            more = len(entries) > _SHOWN
            yield {"name": name, "title": title, "head": list(entries[0]), "rows": rows, "more": more}


def _short(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry with few columns: records as topic/partition/offset."""
    shown = {name: value for name, value in entry.items() if name not in _LEFT_OUT}
    for name, columns in _RECORDS.items():
        if columns <= shown.keys():
            place = "/".join(str(shown.pop(column)) for column in sorted(columns, key=_order))
            shown = {name: place, **shown} if name == "record" else {**shown, name: place}
    return shown


def _order(column: str) -> int:
    return ("topic", "partition", "offset").index(column.removeprefix("origin_"))
