"""The result of an audit and its verdict, as plain values without Spark or Kafka."""

from __future__ import annotations

import enum
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pipeline.audit.evidence import failures

if TYPE_CHECKING:
    from pipeline.audit.evidence import Evidence

LISTED = 1_000  # entries of a list in the JSON; the tables have all of them


class Verdict(enum.StrEnum):
    """The verdict: whether every planned request has exactly one committed answer."""

    PROVED = "proved"
    DISPROVED = "disproved"
    UNDECIDED = "undecided"


@dataclass(kw_only=True)
class Counts:
    """The counts. Unless noted, they are requests: ``planned`` = ``answered`` + ``missing`` + ``duplicate``."""

    planned: int = 0
    answered: int = 0  # exactly once
    missing: int = 0
    duplicate: int = 0  # answered more than once
    unexpected: int = 0  # answers to no planned request
    undecodable: int = 0  # records of the ack topic that are not answers
    open: int = 0  # answers in undecided transactions, and those behind them in their partitions
    failed: int = 0  # answered once, by a failure
    out_of_order: int = 0  # answers behind that of a later request of the same partition
    duplicate_answers: int = 0  # answers beyond the first
    replayed: int = 0  # dead-lettered, sent again and answered again
    uncollected: int = 0  # committed records that are not in the table yet (upper bound)
    open_dead_letters: int = 0  # dead letters in undecided transactions
    blocked_partitions: int = 0  # partitions with an undecided transaction
    dead_letters: int = 0
    dead_letters_unanswered: int = 0  # dead letters whose request has no dead-lettered answer
    dead_letters_lost: int = 0  # dead-lettered answers without a dead letter
    of_other_jobs: int = 0  # records of jobs with another manifest in the lake
    of_other_runs: int = 0  # records of other runs of the job
    without_run: int = 0  # answers to planned requests that name no run, from older workers
    of_deleted_requests: int = 0  # answers to requests that are deleted from the request topic
    without_parent: int = 0  # requests that no successful answer of the previous stage sent
    follow_ups_missing: int = 0  # requests that answers of the previous stage should have sent, but did not
    follow_ups_extra: int = 0  # requests that they sent in excess


@dataclass(kw_only=True)
class AuditResult:
    """All data for the verdict and the report. Times are in epoch seconds, durations in seconds."""

    job: str
    requests_from: str  # "manifest" or "topic"
    counts: Counts
    run: str = ""  # the manifest's
    id: str = field(default_factory=lambda: uuid.uuid4().hex)  # of this audit
    evidence: list[Evidence] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)  # known losses, if losing records was allowed
    loss_allowed: bool = False
    outcomes: dict[str, int] = field(default_factory=dict)
    begin: float | None = None  # of the first answer
    end: float | None = None  # of the last
    durations: dict[str, dict[str, Any]] = field(default_factory=dict)  # by metric
    histograms: dict[str, list[tuple[int, int]]] = field(default_factory=dict)  # by metric: bucket and count
    sampled_every: int = 1  # N: waits and latencies were measured for one in N requests
    step: int = 1  # seconds per point in ``over_time``
    over_time: list[tuple[float, str, int]] = field(default_factory=list)  # begin, outcome, answers
    workers: list[dict[str, Any]] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)
    lists: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def pending(self) -> list[str]:
        """Return why the audit cannot decide yet."""
        counts = self.counts
        lines = [
            (counts.open, "{} in undecided transactions, or behind one", "answer"),
            (counts.open_dead_letters, "{} in undecided transactions, or behind one", "dead letter"),
            (counts.uncollected, "up to {} committed but not collected yet: run pipeline collect", "record"),
        ]
        nothing = [] if counts.planned else ["no request is planned"]
        return [*nothing, *failures(self.evidence), *_sentences(lines)]

    @property
    def violations(self) -> list[str]:
        """Return what disproves the job."""
        counts = self.counts
        lines = [
            (counts.missing, "{} without an answer", "request"),
            (counts.duplicate, "{} answered more than once", "request"),
            (counts.unexpected, "{} to no planned request", "answer"),
            (counts.undecodable, "{} in the ack topic that cannot be decoded", "record"),
            (counts.without_parent, "{} that no answer of the previous stage has sent", "request"),
            (counts.follow_ups_missing, "{} missing after answers of the previous stage", "follow-up request"),
            (counts.follow_ups_extra, "{} too many after answers of the previous stage", "follow-up request"),
        ]
        return _sentences(lines)

    @property
    def warnings(self) -> list[str]:
        """Return findings that do not affect the verdict."""
        counts = self.counts
        lines = [
            (counts.failed, "{} answered by a failure", "request"),
            (counts.out_of_order, "{} out of order", "answer"),
            (counts.replayed, "{} sent again from the dead letters, and answered again", "request"),
            (counts.dead_letters_unanswered, "{} without a dead-lettered answer", "dead letter"),
            (counts.dead_letters_lost, "{} dead-lettered without a dead letter", "answer"),
            (counts.of_other_jobs, "{} of other jobs of this lake, which are audited separately", "record"),
            (counts.of_other_runs, "{} of other runs of this job", "record"),
            (counts.of_deleted_requests, "{} to requests that were deleted from the request topic", "answer"),
        ]
        lost = ["records may have been lost: collect ran with --allow-data-loss"] if self.loss_allowed else []
        return [*lost, *_sentences(lines)]

    @property
    def verdict(self) -> Verdict:
        """Return *undecided* while anything is open. Lost records can hide faults, but faults found remain faults."""
        if self.pending:
            return Verdict.UNDECIDED
        # The missing requests may be the lost ones.
        certain = self.counts.duplicate or self.counts.unexpected or self.counts.undecodable
        if self.loss_allowed and not certain:
            return Verdict.UNDECIDED
        return Verdict.DISPROVED if self.violations else Verdict.PROVED

    @property
    def reasons(self) -> list[str]:
        """Return why the verdict is not *proved*."""
        lost = ["records may have been lost"] if self.loss_allowed else []
        return {
            Verdict.PROVED: [],
            Verdict.DISPROVED: self.violations,
            Verdict.UNDECIDED: [*self.pending, *(lost if not self.pending else [])],
        }[self.verdict]

    def as_json(self) -> dict[str, Any]:
        """Return the content of ``audit.json``."""
        return {
            "id": self.id,
            "job": self.job,
            "verdict": self.verdict.value,
            **vars(self.counts),
            "run": self.run,
            "requests_from": self.requests_from,
            "evidence": [one._asdict() for one in self.evidence],
            "pending": self.pending,
            "violations": self.violations,
            "warnings": self.warnings,
            "loss_allowed": self.loss_allowed,
            "losses": self.losses,
            "outcomes": self.outcomes,
            "first_answer": self.begin,
            "last_answer": self.end,
            "durations": self.durations,
            "durations_sampled_every": self.sampled_every,
            "workers": self.workers[:LISTED],
            "errors": self.errors[:LISTED],
            "lists": {name: entries[:LISTED] for name, entries in self.lists.items()},
        }


def _sentences(lines: list[tuple[int, str, str]]) -> list[str]:
    """Return a sentence for each count above 0, from the count, the sentence and the noun for what is counted."""
    return [text.format(_many(count, noun)) for count, text, noun in lines if count]


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
