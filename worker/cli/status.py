"""``worker status``: shows lag and members of the group, running tasks, answers and dead letters."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from worker.cli.access import Access
from worker.cli.console import columns, count, show
from worker.cli.journal import Journal
from worker.cli.replicas import flat, running
from worker.cli.status_watch import watch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from worker.core.model import Partition
    from worker.kafka.cluster import Cluster
    from worker.kafka.descriptions import Member, Span

EPILOG = """\b
Examples:
  worker status
  worker status --watch
  worker status --url http://replica-0:8080 --url http://replica-1:8080
  worker status --json | jq .lag

\b
Lag is the number of offsets from the group's committed offset to the end of a partition. It
includes queued requests and running tasks. Answers and dead letters are counted by offsets too,
so with WORKER_GUARANTEE=exactly-once their numbers include transaction markers.

\b
--watch shows lag, rate, the estimated remaining time, running tasks and the errors of new dead
letters until Ctrl-C. On a terminal it shows a page, otherwise it prints lines (JSON with --json).
"""


@click.command(epilog=EPILOG, short_help="Show lag, members, running tasks, answers and dead letters.")
@click.option("--url", "urls", multiple=True, help="Show the running tasks of this replica. May be repeated.")
@click.option("--watch", "watches", is_flag=True, help="Repeat every few seconds, with the rate and an estimate.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def status(*, urls: tuple[str, ...], watches: bool, as_json: bool) -> int:
    """Show lag, members, running tasks, and the number of answers and dead letters.

    Without --url, shows the tasks of the replica on this machine, if one listens on WORKER_HTTP_PORT.
    """
    access = Access()
    settings = access.settings

    def report() -> dict[str, Any]:
        return {
            **group_report(access.cluster, settings.group, settings.request_topics),
            "processes": running(urls, settings.http_port),
        }

    if watches:
        return watch(access, report, as_json=as_json)
    full = {**report(), "answers": _count(access.cluster, settings.ack_topic), "dead_letters": _dead_letters(access)}
    if as_json:
        click.echo(json.dumps(full, indent=2))
    else:
        _print(full)
    return 0


def group_report(cluster: Cluster, group: str, topics: Iterable[str]) -> dict[str, Any]:
    """Return the lag by partition and in total, and the members."""
    partitions = [partition for topic in topics for partition in cluster.partitions(topic)]
    spans, committed, members = cluster.spans(partitions), cluster.committed(group, partitions), cluster.members(group)
    owners = {partition: member.client_id for member in members for partition in member.partitions}
    rows = [_row(place, spans[place], committed.get(place), owners.get(place)) for place in partitions]
    return {
        "group": group,
        "lag": sum(row["lag"] for row in rows),
        "partitions": rows,
        "members": [_member(member) for member in members],
    }


def _row(partition: Partition, span: Span, committed: int | None, owner: str | None) -> dict[str, Any]:
    # A group without a commit begins at the start; so does a group whose commit has expired.
    # After its topic was recreated, a commit may be past the end.
    lag = max(0, span.end - max(span.start, committed or 0))
    return {
        "topic": partition.topic,
        "partition": partition.number,
        "committed": committed,
        "end": span.end,
        "lag": lag,
        "member": owner,
    }


def _member(member: Member) -> dict[str, Any]:
    return {
        "client_id": member.client_id,
        "host": member.host,
        "partitions": [str(partition) for partition in member.partitions],
    }


def _count(cluster: Cluster, topic: str) -> dict[str, Any]:
    """Return the number of offsets in a topic; None if it does not exist."""
    partitions = cluster.find(topic)
    if partitions is None:
        return {"topic": topic, "records": None}
    return {"topic": topic, "records": sum(span.end - span.start for span in cluster.spans(partitions).values())}


def _dead_letters(access: Access) -> dict[str, Any]:
    """Return the number of dead letters, and how many of them were replayed."""
    topic = access.settings.dead_letter_topic
    found = _count(access.cluster, topic)
    if found["records"] is None:
        return found
    spans = access.cluster.spans(access.cluster.partitions(topic))
    return {**found, "replayed": Journal(access).count(spans)}


# ---------------------------------------------------------------- tables


def _print(report: dict[str, Any]) -> None:
    click.echo(f"group {report['group']}: lag {report['lag']}")
    _table(report["partitions"], "topic", "partition", "committed", "end", "lag", "member")
    click.echo(f"\n{count(len(report['members']), 'member')}")
    if report["members"]:
        rows = [{**member, "partitions": ", ".join(member["partitions"])} for member in report["members"]]
        _table(rows, "client_id", "host", "partitions")
    click.echo(f"\nanswers in {_records(report['answers'])}")
    replayed = report["dead_letters"].get("replayed")
    click.echo(f"\ndead letters in {_records(report['dead_letters'])}" + (f", {replayed} replayed" if replayed else ""))
    if report["processes"]:
        click.echo("\nprocesses")
        rows = [row for process in report["processes"] for row in flat(process)]
        _table(rows, "replica", "slot", "pid", "state", "queued", "task", "key", "sequence", "attempt", "seconds")


def _records(found: dict[str, Any]) -> str:
    records = found["records"]
    return f"{found['topic']}: {'no such topic' if records is None else records}"


def _table(rows: list[dict[str, Any]], *names: str) -> None:
    table = columns(*names)
    for row in rows:
        table.add_row(*(Text("-" if row[name] is None else str(row[name])) for name in names))
    show(table)
