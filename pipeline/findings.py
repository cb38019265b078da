"""What an audit has found, and what follows from it. Plain values: no Spark, no Kafka."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

LISTED = 1_000  # entries of a list in the JSON; all of them are in the tables


class Verdict(enum.StrEnum):
    """Whether every planned request has exactly one committed answer."""

    PROVED = "proved"
    DISPROVED = "disproved"
    UNDECIDED = "undecided"

    @property
    def exit_code(self) -> int:
        """What ``pipeline audit`` ends with."""
        return {Verdict.PROVED: 0, Verdict.DISPROVED: 1, Verdict.UNDECIDED: 2}[self]


@dataclass(kw_only=True)
class Counts:
    """Requests where nothing else is said: ``planned`` = ``answered`` + ``missing`` + ``duplicate``."""

    planned: int = 0
    answered: int = 0  # exactly once
    missing: int = 0
    duplicate: int = 0  # answered more than once
    unexpected: int = 0  # answers to nothing that is planned
    undecodable: int = 0  # records of the ack topic that are no answers
    open: int = 0  # answers in undecided transactions, and those behind them in their partitions
    failed: int = 0  # answered once, by a failure
    out_of_order: int = 0  # answers that stand behind that of a later request of the same partition
    duplicate_answers: int = 0  # answers too many
    replayed: int = 0  # dead-lettered, sent again and answered again
    uncollected: int = 0  # committed records that are not in the table yet, at most
    open_letters: int = 0  # dead letters in undecided transactions
    blocked_partitions: int = 0  # partitions with an undecided transaction
    dead_letters: int = 0
    letters_unanswered: int = 0  # dead letters whose request has no dead-lettered answer
    letters_lost: int = 0  # dead-lettered answers without a dead letter
    of_other_jobs: int = 0  # records of jobs with a manifest of their own in the lake
    of_deleted_requests: int = 0  # answers to requests that no longer stand in the request topic


@dataclass(kw_only=True)
class Findings:
    """Everything the verdict and the report are made from. Times are epoch seconds, durations seconds."""

    job: str
    requests_from: str  # "manifest" or "topic"
    counts: Counts
    losses: list[str] = field(default_factory=list)  # if losing records was allowed: what is known to be lost
    loss_allowed: bool = False
    outcomes: dict[str, int] = field(default_factory=dict)
    begin: float | None = None  # of the first answer
    end: float | None = None  # of the last
    durations: dict[str, dict[str, Any]] = field(default_factory=dict)  # by metric
    histograms: dict[str, list[tuple[int, int]]] = field(default_factory=dict)  # by metric: bucket and count
    sampled_every: int = 1  # of the requests that waits and latencies were measured for
    step: int = 1  # seconds of a point in ``over_time``
    over_time: list[tuple[float, str, int]] = field(default_factory=list)  # begin, outcome, answers
    workers: list[dict[str, Any]] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)
    lists: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def open_questions(self) -> list[str]:
        """Why nothing can be said yet."""
        counts = self.counts
        lines = [
            (counts.open, "{} in undecided transactions, or behind one", "answer"),
            (counts.open_letters, "{} in undecided transactions, or behind one", "dead letter"),
            (counts.uncollected, "up to {} committed but not collected yet: run pipeline collect", "record"),
        ]
        said = _told(lines)
        return said if counts.planned else ["no request is planned", *said]

    @property
    def faults(self) -> list[str]:
        """What disproves it."""
        counts = self.counts
        lines = [
            (counts.missing, "{} without an answer", "request"),
            (counts.duplicate, "{} answered more than once", "request"),
            (counts.unexpected, "{} to nothing that is planned", "answer"),
            (counts.undecodable, "{} in the ack topic that cannot be decoded", "record"),
        ]
        return _told(lines)

    @property
    def remarks(self) -> list[str]:
        """What is worth knowing and decides nothing."""
        counts = self.counts
        lines = [
            (counts.failed, "{} answered by a failure", "request"),
            (counts.out_of_order, "{} out of order", "answer"),
            (counts.replayed, "{} sent again from the dead letters, and answered again", "request"),
            (counts.letters_unanswered, "{} without a dead-lettered answer", "dead letter"),
            (counts.letters_lost, "{} dead-lettered without a dead letter", "answer"),
            (counts.of_other_jobs, "{} of other jobs of this lake, which have audits of their own", "record"),
            (counts.of_deleted_requests, "{} to requests that were deleted from the request topic", "answer"),
        ]
        said = _told(lines)
        return [
            *(["records may have been lost: collect ran with --allow-data-loss"] if self.loss_allowed else []),
            *said,
        ]

    @property
    def verdict(self) -> Verdict:
        """Undecided while anything is open. Lost records can hide faults, but do not undo those that were found."""
        if self.open_questions:
            return Verdict.UNDECIDED
        # What is missing may be what was lost.
        certain = self.counts.duplicate or self.counts.unexpected or self.counts.undecodable
        if self.loss_allowed and not certain:
            return Verdict.UNDECIDED
        return Verdict.DISPROVED if self.faults else Verdict.PROVED

    def as_json(self) -> dict[str, Any]:
        """The content of ``audit.json``."""
        return {
            "job": self.job,
            "verdict": self.verdict.value,
            **vars(self.counts),
            "requests_from": self.requests_from,
            "open_questions": self.open_questions,
            "faults": self.faults,
            "remarks": self.remarks,
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


def _told(lines: list[tuple[int, str, str]]) -> list[str]:
    """A sentence for each count that is not 0: the count, the sentence, and the noun for what is counted."""
    return [text.format(_many(count, noun)) for count, text, noun in lines if count]


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
