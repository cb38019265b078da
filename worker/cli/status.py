"""``worker status``: how far the group is, who works on what, and what came of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from worker.cli.access import Access
from worker.cli.console import columns, show
from worker.cli.replicas import running

if TYPE_CHECKING:
    from collections.abc import Iterable

    from worker.core.model import Partition
    from worker.kafka.cluster import Cluster, Member, Span

EPILOG = """\b
Examples:
  worker status
  worker status --url http://replica-0:8080 --url http://replica-1:8080
  worker status --json | jq .lag

\b
Lag is the number of offsets between the group's commit and the end of a partition: what runs
and what is queued is in it. Answers and dead letters are counted by offsets too, so the markers
of transactions (WORKER_GUARANTEE=exactly-once) are counted with them.
"""


@click.command(epilog=EPILOG)
@click.option("--url", "urls", multiple=True, help="A replica to ask for its running tasks. May be repeated.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of tables.")
def status(*, urls: tuple[str, ...], as_json: bool) -> None:
    """Show lag, members, running tasks, and how many answers and dead letters there are.

    Without --url the replica on this machine is asked for its tasks, if one answers on WORKER_HTTP_PORT.
    """
    access = Access()
    cluster, settings = access.cluster, access.settings
    report = {
        **group_report(cluster, settings.group, settings.request_topics),
        "answers": count(cluster, settings.ack_topic),
        "dead_letters": count(cluster, settings.dead_letter_topic),
        "processes": running(urls, settings.http_port),
    }
    if as_json:
        click.echo(json.dumps(report, indent=2))
    else:
        _print(report)


def group_report(cluster: Cluster, group: str, topics: Iterable[str]) -> dict[str, Any]:
    """Lag by partition and in all, and the members."""
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
    # A group that has committed nothing begins at the start; one whose commit retention has passed, too.
    lag = span.end - max(span.start, committed or 0)
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


def count(cluster: Cluster, topic: str) -> dict[str, Any]:
    """How many offsets a topic holds; None if it does not exist."""
    partitions = cluster.find(topic)
    if partitions is None:
        return {"topic": topic, "records": None}
    return {"topic": topic, "records": sum(span.end - span.start for span in cluster.spans(partitions).values())}


# ---------------------------------------------------------------- for the eye


def _print(report: dict[str, Any]) -> None:
    click.echo(f"group {report['group']}: lag {report['lag']}")
    _table(report["partitions"], "topic", "partition", "committed", "end", "lag", "member")
    click.echo(f"\n{len(report['members'])} members")
    if report["members"]:
        rows = [{**member, "partitions": ", ".join(member["partitions"])} for member in report["members"]]
        _table(rows, "client_id", "host", "partitions")
    for name, label in (("answers", "answers"), ("dead_letters", "dead letters")):
        topic, records = report[name]["topic"], report[name]["records"]
        click.echo(f"\n{label} in {topic}: {'no such topic' if records is None else records}")
    if report["processes"]:
        click.echo("\nprocesses")
        _table(report["processes"], "replica", "slot", "pid", "state", "queued", "task", "seconds")


def _table(rows: list[dict[str, Any]], *names: str) -> None:
    table = columns(*names)
    for row in rows:
        table.add_row(*(Text("-" if row[name] is None else str(row[name])) for name in names))
    show(table)
