"""The evidence of an audit: whether its data is complete, and is the right data. Pure: facts in, evidence out.

Counting proves nothing about records that could not be read. Each piece of evidence is checked before the verdict. A
failed one makes the verdict *undecided*.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pipeline.kafka.topics import Topic

    Offsets = Mapping[str, Mapping[int, int]]  # by topic and partition

_SHOWN = 3  # partitions that a detail names


class State(enum.StrEnum):
    """The result of a check."""

    OK = "ok"
    FAILED = "failed"
    NOT_CHECKED = "not checked"  # there are no data to check it against, and none that contradict it


class Evidence(NamedTuple):
    """One check: its name, its result, the finding, and what to do if it failed."""

    name: str
    state: State
    detail: str
    action: str = ""


class ManifestFacts(NamedTuple):
    """A manifest as it is, and as it was recorded. ``noted_*`` is None without a record."""

    rows: int
    digest: str
    noted_rows: int | None
    noted_digest: str | None


@dataclass(frozen=True, kw_only=True)
class TopicFacts:
    """A topic whose records are audited.

    ``topic`` is None if it does not exist. ``policy`` is its ``cleanup.policy``, or None without permission to read
    it. ``ids`` are its ids when requests were submitted and answers collected, keyed by the source of the record.
    ``ends`` is where the table ends. ``begins`` is where collecting began, or None if unknown. ``expected_begins`` is
    the earliest place of the job's answers.
    """

    name: str
    topic: Topic | None
    policy: str | None
    ids: Mapping[str, str] = field(default_factory=dict)
    ends: Mapping[int, int] = field(default_factory=dict)
    begins: Mapping[int, int] | None = field(default_factory=dict)
    expected_begins: Mapping[int, int] = field(default_factory=dict)


def of_manifest(facts: ManifestFacts) -> Evidence:
    """Check that the manifest has all planned rows, and no others."""
    name = "the manifest is complete"
    again = "restore its files from a backup, or plan the job in another lake"
    if facts.noted_rows is None:
        return Evidence(name, State.FAILED, "the manifest has no metadata file (_manifest.json)", again)
    if facts.rows != facts.noted_rows:
        detail = f"the manifest has {facts.rows:,} rows, and {facts.noted_rows:,} were planned"
        return Evidence(name, State.FAILED, detail, again)
    if facts.noted_digest and facts.digest != facts.noted_digest:
        detail = f"the digest of the manifest is {facts.digest}, and that of the planned rows {facts.noted_digest}"
        return Evidence(name, State.FAILED, detail, again)
    digest = f", digest {facts.digest}" if facts.noted_digest else ""
    return Evidence(name, State.OK, f"{facts.rows:,} rows as planned{digest}")


def of_bronze(lost: int | None, batches: int = 0) -> Evidence:
    """Check that bronze has all rows that were collected. ``lost`` is None if their number was not recorded.

    ``batches`` is how many batches have lost their folder, with the record of their rows.
    """
    name = "bronze has all rows that were collected"
    restore = "restore its files from a backup, or collect into another lake"
    if batches:
        detail = f"bronze lacks {batches:,} of the batches that were collected: their folders are missing"
        return Evidence(name, State.FAILED, detail, restore)
    if lost is None:
        return Evidence(name, State.NOT_CHECKED, "the number of rows was not recorded")
    if lost:
        detail = f"bronze has {lost:,} rows fewer than were collected: files are missing or empty"
        return Evidence(name, State.FAILED, detail, restore)
    return Evidence(name, State.OK, "as many as recorded")


def of_runs(run: str, without_run: int, other_runs: Iterable[str]) -> Evidence:
    """Check that the answers are known to be to this run's requests. ``without_run`` of them name no run."""
    name = "the answers belong to this run"
    others = ", ".join(other or "(unnamed)" for other in other_runs)
    if not run:
        return Evidence(name, State.NOT_CHECKED, "the job was planned by a version that did not name runs")
    if without_run and others:
        detail = f"{without_run:,} answers name no run, and the job was also submitted as {others}"
        return Evidence(name, State.FAILED, detail, "update the workers, and submit the data under another job")
    if without_run:
        return Evidence(name, State.OK, f"{without_run:,} answers name no run, and no other run of the job is known")
    return Evidence(name, State.OK, f"all name run {run}")


def of_replays(unproven: int) -> Evidence:
    """Check that each dead-lettered request with a later answer is known to have been replayed."""
    name = "replays are known to be replays"
    if not unproven:
        return Evidence(name, State.OK, "no request is taken for a replay without its record")
    detail = f"{unproven:,} requests have a second answer, and the request topic no longer has the record answered last"
    return Evidence(name, State.FAILED, detail, "look at the table duplicate of an earlier audit")


def of_answers(facts: TopicFacts) -> list[Evidence]:
    """Check that every record in the ack topic, or dead-letter topic, since the submit was collected."""
    name = facts.name
    if facts.topic is None:
        detail = "the topic does not exist"
        return [Evidence(f"{name} exists", State.FAILED, detail, "correct its name, or create it")]
    return [
        _identity(facts, facts.topic),
        _not_compacted(facts),
        _from_the_beginning(facts),
        _not_deleted(facts, facts.topic),
        _not_shorter(facts, facts.topic),
    ]


def of_requests(facts: TopicFacts) -> list[Evidence]:
    """Check, without a manifest, that the request topic still has all requests, and that each is decided."""
    name = facts.name
    if facts.topic is None:
        detail = "the request topic does not exist"
        return [Evidence(f"{name} exists", State.FAILED, detail, "correct KAFKA_REQUEST_TOPIC")]
    return [_not_compacted(facts), _decided(name, facts.topic), _whole(name, facts.topic)]


def _identity(facts: TopicFacts, topic: Topic) -> Evidence:
    name = f"{facts.name} is the topic that was collected"
    other = [when for when, id_ in facts.ids.items() if id_ != topic.id]
    if other:
        detail = f"the topic was deleted and recreated: it has another id than when {' and when '.join(other)}"
        return Evidence(name, State.FAILED, detail, "submit the data again, in another lake and under another job")
    if not facts.ids:
        return Evidence(name, State.NOT_CHECKED, "nothing was submitted from this lake or collected yet")
    return Evidence(name, State.OK, f"id {topic.id}")


def _not_compacted(facts: TopicFacts) -> Evidence:
    name = f"{facts.name} is not compacted"
    if facts.policy is None:
        detail = "its cleanup.policy may not be read"
        return Evidence(name, State.FAILED, detail, "allow DescribeConfigs on the topic")
    if "compact" in facts.policy:
        detail = f"cleanup.policy={facts.policy}: Kafka may have removed records that have the same key"
        return Evidence(name, State.FAILED, detail, "set cleanup.policy=delete, and submit under another job")
    return Evidence(name, State.OK, f"cleanup.policy={facts.policy}")


def _from_the_beginning(facts: TopicFacts) -> Evidence:
    name = f"{facts.name} was collected from where the job's answers begin"
    if facts.ends and facts.begins is None:
        detail = "where collecting began is not known (_begins.json)"
        return Evidence(name, State.FAILED, detail, "collect the job into another lake")
    late = {p: (facts.expected_begins.get(p, 0), begin) for p, begin in (facts.begins or {}).items()}
    lines = [f"{facts.name}/{p}: {low} to {begin - 1}" for p, (low, begin) in sorted(late.items()) if begin > low]
    return _by_partition(name, "records were deleted before they were collected", lines, "collect sooner")


def _not_deleted(facts: TopicFacts, topic: Topic) -> Evidence:
    name = f"{facts.name} has everything that is not collected yet"
    lines = []
    for partition, span in sorted(topic.spans.items()):
        begin = (facts.begins or {}).get(partition, facts.expected_begins.get(partition, 0))
        wanted = facts.ends.get(partition, begin)
        if span.low > wanted:
            lines.append(f"{facts.name}/{partition}: {wanted} to {span.low - 1}")
    return _by_partition(name, "records were deleted before they were collected", lines, "collect sooner")


def _not_shorter(facts: TopicFacts, topic: Topic) -> Evidence:
    name = f"{facts.name} is as long as what was collected"
    lines = []
    for partition, end in sorted(facts.ends.items()):
        span = topic.spans.get(partition)
        if span is None:
            lines.append(f"{facts.name}/{partition} is gone")
        elif span.high < end:
            lines.append(f"{facts.name}/{partition} ends at {span.high}, and was collected up to {end}")
    return _by_partition(
        name, "records were cut off", lines, "submit the data again, in another lake and under another job"
    )


def _decided(name: str, topic: Topic) -> Evidence:
    lines = [f"{name}/{p} from {span.stable}" for p, span in sorted(topic.spans.items()) if span.high > span.stable]
    return _by_partition(
        f"{name} has no undecided requests",
        "a transaction is open, and the requests from there on cannot be seen",
        lines,
        "audit again when it is over: --wait 15m",
    )


def _whole(name: str, topic: Topic) -> Evidence:
    lines = [f"{name}/{p} begins at {span.low}" for p, span in sorted(topic.spans.items()) if span.low]
    return _by_partition(
        f"{name} has all its requests",
        "requests were deleted, and whether they were answered cannot be said",
        lines,
        "plan and submit the requests with pipeline, or keep the topic longer",
    )


def _by_partition(name: str, problem: str, lines: list[str], action: str) -> Evidence:
    if not lines:
        return Evidence(name, State.OK, "in every partition")
    more = f" and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    return Evidence(name, State.FAILED, f"{problem}: {'; '.join(lines[:_SHOWN])}{more}", action)


def failures(found: Iterable[Evidence]) -> Iterator[str]:
    """Yield a line for each failed piece of evidence, with the finding and what to do."""
    for one in found:
        if one.state is State.FAILED:
            yield f"not shown that {one.name}: {one.detail} (to do: {one.action})"
