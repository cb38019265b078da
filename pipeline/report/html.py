"""The report as one page of HTML: styles and pictures are inside, nothing is fetched."""

from __future__ import annotations

import base64
import html
import time
from typing import TYPE_CHECKING, Any

from pipeline.findings import Verdict
from pipeline.report import plots
from pipeline.report.style import STYLE
from pipeline.report.words import duration, moment, percent, rounded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pipeline.findings import Findings

_SHOWN = 12  # rows of a list; the tables have them all
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
    "unexpected": "Unexpected: answers to nothing that is planned",
    "undecodable": "Undecodable: records of the ack topic that are no answers",
    "open": "Open: records in undecided transactions, or behind one",
    "uncollected": "Committed, but not collected yet",
    "out_of_order": "Out of order: answers behind that of a later request",
    "letters_unanswered": "Dead letters without their answer",
    "letters_lost": "Dead-lettered answers without a dead letter",
    "failed": "Answered by a failure",
}
_PLACES = {
    "record": {"topic", "partition", "offset"},
    "request's record": {"origin_topic", "origin_partition", "origin_offset"},
}
_LEFT_OUT = {"raw", "timestamp", "request_sequence"}  # columns for which a page is too narrow


def page(findings: Findings) -> str:
    """The whole page."""
    title = f"Audit of {findings.job}: {findings.verdict.value}"
    body = [_banner(findings), _tiles(findings), _remarks(findings), _pictures(findings), *_tables(findings)]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in body if part)
        + f"\n{_footer(findings)}\n</main>\n</body>\n</html>\n"
    )


def _text(value: Any) -> str:
    return html.escape("" if value is None else str(value))


def _banner(findings: Findings) -> str:
    counts = findings.counts
    requests = f"{counts.planned:,} request{'' if counts.planned == 1 else 's'}"
    reasons = {
        Verdict.PROVED: [f"Each of {requests} has exactly one committed answer."],
        Verdict.DISPROVED: [f"Of {requests}, {counts.answered:,} have exactly one committed answer.", *findings.faults],
        Verdict.UNDECIDED: [
            "It cannot be said yet.",
            *findings.open_questions,
            *(f"so far: {f}" for f in findings.faults),
        ],
    }[findings.verdict]
    if findings.verdict is Verdict.UNDECIDED and not findings.open_questions:
        reasons = ["It cannot be said: records may have been lost.", *findings.faults]
    first, *others = reasons
    listed = f"<ul>{''.join(f'<li>{_text(reason)}</li>' for reason in others)}</ul>" if others else ""
    name = findings.verdict.value
    heading = f'<p class="job">Audit of job {_text(findings.job)}</p><h1>{name.upper()}</h1>'
    return f'<header class="{name}">{heading}<p>{_text(first)}</p>{listed}</header>'


def _tiles(findings: Findings) -> str:
    tiles = []
    for name, label in _LABELS.items():
        count = getattr(findings.counts, name)
        kind = "plain" if name == "planned" else "good" if name == "answered" else "bad" if count else "none"
        kind = "open" if name == "open" and count else kind
        share = percent(count, findings.counts.planned) if name == "answered" else ""
        tiles.append(f'<div class="tile {kind}"><b>{count:,}</b><span>{label}</span><i>{share}</i></div>')
    return f'<section class="tiles">{"".join(tiles)}</section>'


def _remarks(findings: Findings) -> str:
    lines = [*findings.remarks, *findings.losses]
    return (
        f"<section><h2>Remarks</h2><ul>{''.join(f'<li>{_text(r)}</li>' for r in lines)}</ul></section>" if lines else ""
    )


def _pictures(findings: Findings) -> str:
    skew = _skew(findings)
    sampled = f" All but work is of one request in {findings.sampled_every}." if findings.sampled_every > 1 else ""
    parts = [
        _picture("Answers over time", plots.over_time(findings), _span(findings)),
        _picture("How long requests took", plots.durations(findings), f"Values are known to within 1 %.{sampled}"),
        _percentiles(findings),
        _picture("Work by worker", plots.workers(findings), skew),
        _picture("Failures by type", plots.errors(findings), ""),
    ]
    return "\n".join(parts)


def _picture(title: str, png: bytes | None, caption: str) -> str:
    if png is None:
        return ""
    source = base64.b64encode(png).decode()
    said = f"<p>{_text(caption)}</p>" if caption else ""
    image = f'<img alt="{title}" src="data:image/png;base64,{source}">'
    return f'<section><h2>{title}</h2>{said}<div class="wide">{image}</div></section>'


def _span(findings: Findings) -> str:
    if findings.begin is None or findings.end is None:
        return ""
    seconds = findings.end - findings.begin
    total = sum(findings.outcomes.values())
    rate = f", {rounded(total / seconds)} answers a second on average" if seconds >= 1 else ""
    return f"From {moment(findings.begin)} to {moment(findings.end)} ({duration(seconds)}){rate}."


def _skew(findings: Findings) -> str:
    work = [worker["work_seconds"] or 0.0 for worker in findings.workers]
    cpu = sum(worker["cpu_seconds"] or 0.0 for worker in findings.workers)
    if not sum(work):
        return ""
    many = f"{len(work)} worker{'' if len(work) == 1 else 's'}"
    text = f"{many}, {duration(sum(work))} of work, {duration(cpu)} of CPU ({percent(cpu, sum(work))})."
    return f"{text} The busiest did {max(work) * len(work) / sum(work):.2f} times the mean." if len(work) > 1 else text


def _percentiles(findings: Findings) -> str:
    names = ["p50", "p90", "p95", "p99", "longest", "mean"]
    rows = [
        [
            title,
            *(duration(findings.durations[metric][name]) for name in names),
            f"{findings.durations[metric]['count']:,}",
        ]
        for metric, title in plots.TITLES.items()
        if findings.durations.get(metric)
    ]
    table = _table(["", *names, "requests"], rows, numbers=True)
    return f'<section class="wide">{table}</section>' if rows else ""


def _tables(findings: Findings) -> Iterable[str]:
    for name, title in _LISTS.items():
        entries = [_short(entry) for entry in findings.lists.get(name, [])[: _SHOWN + 1]]
        if entries:
            table = _table(list(entries[0]), [list(entry.values()) for entry in entries[:_SHOWN]])
            rest = f"<p>The first {_SHOWN}; all of them are in the table <code>{name}</code>.</p>"
            more = rest if len(entries) > _SHOWN else ""
            yield f'<section><h2>{title}</h2>{more}<div class="wide list">{table}</div></section>'


def _short(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry in few columns: places as topic/partition/offset."""
    shown = {name: value for name, value in entry.items() if name not in _LEFT_OUT}
    for name, columns in _PLACES.items():
        if columns <= shown.keys():
            place = "/".join(str(shown.pop(column)) for column in sorted(columns, key=_order))
            shown = {name: place, **shown} if name == "record" else {**shown, name: place}
    return shown


def _order(column: str) -> int:
    return ("topic", "partition", "offset").index(column.removeprefix("origin_"))


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]], *, numbers: bool = False) -> str:
    kind = ' class="numbers"' if numbers else ""
    cells = "".join(f"<th>{_text(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(f'<td>{_text(value)}</td>' for value in row)}</tr>" for row in rows)
    return f"<table{kind}><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"


def _footer(findings: Findings) -> str:
    proof = "the manifest" if findings.requests_from == "manifest" else "the records of the request topic"
    return f"<footer>Judged against {proof}. Made {moment(time.time())}.</footer>"
