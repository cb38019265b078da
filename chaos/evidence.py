"""The evidence of a run, as values for the invariants."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from chaos.options import Options
    from chaos.requests import Item

RecordId = tuple[int, int]  # partition and offset of a request
Span = tuple[float, float]  # begin and end, in seconds of the system's monotonic clock


AT_ONCE = 0.1  # seconds: a process that crashes so soon may do so before a start or a failure is recorded


class Answer(NamedTuple):
    """A committed answer. ``topic`` and ``record`` are its origin."""

    topic: str
    record: RecordId
    outcome: str
    sequence: int
    key: bytes | None
    at: float  # time of production
    replica: str  # that sent it
    set_back: bool = False  # its time stamp is hours before that, because the clock of the replica was set back


class DeadLetter(NamedTuple):
    """A committed dead letter."""

    record: RecordId
    key: bytes | None
    value: bytes | None


class JournalEntry(NamedTuple):
    """A line of the handlers' journal.

    ``event`` is ``start``, ``end``, ``raise``, ``stop`` (a drain or a revoked partition ended the handler), ``crash``
    (the handler is about to end its process), ``resume`` or ``checkpoint``. The last two have a ``step``.
    """

    event: str
    replica: str
    pid: int
    record: RecordId
    attempt: int
    time: float
    step: int = 0


class StateRecord(NamedTuple):
    """A record of the state topic. ``at`` is the broker's time; ``start`` identifies the start that wrote it."""

    record: RecordId
    at: float
    cancel: bool = False  # a request to cancel, otherwise the state of a task
    removed: bool = False
    start: tuple[int, int] = (0, 0)
    step: int = 0  # of the checkpoint; 0: none
    state: str = ""


class Resolved(NamedTuple):
    """What a future of ``worker.Client`` resolved to.

    ``outcome`` is ``OK``, the outcome of a failed request, another error, or "" if the future is not resolved.
    ``value`` is its result, and ``wanted`` the one that the request must have.
    """

    outcome: str
    value: str
    wanted: str


class Call(NamedTuple):
    """A call of a command of the pipeline. ``last`` is the last line that it printed."""

    command: str
    code: int
    killed: bool = False  # by the suite
    healed: bool = False  # it began when there were no faults any more
    last: str = ""


class Audit(NamedTuple):
    """The result of ``pipeline audit``: its exit code, and what it wrote."""

    code: int
    verdict: str
    counts: Mapping[str, int]


class FaultWindow(NamedTuple):
    """A fault that may explain a second start. ``replicas`` are those that it hit; an empty set means all of them.

    ``blocks`` means that commits may fail or take seconds during the fault.
    """

    begin: float
    end: float
    replicas: frozenset[str] = frozenset()
    blocks: bool = False


class Exit(NamedTuple):
    """The end of a replica.

    ``sigterms`` counts the signals from the suite. ``supervising`` means that the supervisor had logged its start. A
    ``duplicate`` is a second replica of the same name, which must be refused. ``faults`` are the areas of the unclean
    faults that overlap the replica's life or end (see ``chaos.faults``).
    """

    replica: str
    code: int
    sigterms: int = 0
    supervising: bool = True
    duplicate: bool = False
    faults: frozenset[str] = frozenset()


class Sample(NamedTuple):
    """Memory and threads of a worker process at one time. ``pss`` is in bytes."""

    pid: int
    time: float
    pss: int
    threads: Counter[str]  # number of threads by name


@dataclass(frozen=True)
class Evidence:
    """All that is known about a run. ``topic`` is the request topic."""

    options: Options
    topic: str
    sent: Mapping[RecordId, Item]
    sent_at: Mapping[RecordId, float] = field(default_factory=dict)  # the time of the broker's confirmation
    copies: frozenset[RecordId] = frozenset()  # requests in ``sent`` that their sender produced only once
    resent: Sequence[Item] = ()  # sent a second time after a delivery failure
    answers: Sequence[Answer] = ()
    dead_letters: Sequence[DeadLetter] = ()
    journal: Sequence[JournalEntry] = ()
    committed: Mapping[int, int] = field(default_factory=dict)
    ends: Mapping[int, int] = field(default_factory=dict)
    reported_lost: frozenset[RecordId] = frozenset()  # reported as lost by the worker
    fault_windows: Sequence[FaultWindow] = ()
    exits: Sequence[Exit] = ()
    leftovers: Sequence[str] = ()  # processes that outlived the run
    samples: Sequence[Sample] = ()
    effects: Mapping[RecordId, int] | None = None  # rows that handlers wrote into the store
    hung_clients: int = 0  # the most clients that one process reported as abandoned
    outages: int = 0  # faults of brokers and cut connections, which limit the abandoned clients that the run explains
    holds: Sequence[tuple[str, float]] = ()  # process, and seconds that it held revoked partitions
    failed: Sequence[str] = ()  # expectations of the suite that were not met
    cancelled: Mapping[RecordId, float] = field(default_factory=dict)  # when the broker had stored the request
    states: Sequence[StateRecord] = ()  # the state topic, in the order of each partition
    logged: Mapping[str, int] = field(default_factory=dict)  # events of features, counted; the verdict ignores them
    follow_ups: Mapping[RecordId, RecordId] = field(default_factory=dict)  # to the request that sent it

    futures: Mapping[RecordId, Resolved] = field(default_factory=dict)  # of requests submitted through the client
    found_again: Mapping[RecordId, Resolved] = field(default_factory=dict)  # the same, found by their ids at the end

    rows: Mapping[bytes, bytes] = field(default_factory=dict)  # of the pipeline's table: its requests by their keys
    calls: Sequence[Call] = ()  # of the pipeline, except the audit
    collected: Sequence[tuple[str, int, int]] = ()  # its answers and dead letters: topic, partition and offset
    audit: Audit | None = None

    @property
    def in_order(self) -> list[JournalEntry]:
        """Return the journal in order of time."""
        return sorted(self.journal, key=lambda entry: entry.time)

    @property
    def starts(self) -> dict[RecordId, list[JournalEntry]]:
        """Return the starts of each request, in order of time."""
        found: dict[RecordId, list[JournalEntry]] = defaultdict(list)
        for entry in self.in_order:
            if entry.event == "start":
                found[entry.record].append(entry)
        return found

    @property
    def finishes(self) -> dict[JournalEntry, JournalEntry]:
        """Return the ``end``, ``raise`` or ``stop`` of each start. A start whose process died has none."""
        found: dict[JournalEntry, JournalEntry] = {}
        running: dict[tuple[int, RecordId], JournalEntry] = {}
        for entry in self.in_order:
            if entry.event == "start":
                running[entry.pid, entry.record] = entry
            elif entry.event in ("end", "raise", "stop") and (entry.pid, entry.record) in running:
                found[running.pop((entry.pid, entry.record))] = entry
        return found

    @property
    def bad_starts(self) -> list[JournalEntry]:
        """Return the starts without a good finish. Starts that a drain or a revoked partition stopped do not count."""
        finishes = self.finishes
        return [
            one
            for entries in self.starts.values()
            for one in entries
            if one not in finishes or finishes[one].event == "raise"
        ]

    @property
    def crashed(self) -> frozenset[JournalEntry]:
        """Return the starts whose handler announced the end of its process and wrote nothing afterwards."""
        crashes = {(entry.pid, entry.record, entry.attempt) for entry in self.journal if entry.event == "crash"}
        finishes = self.finishes
        return frozenset(
            one
            for entries in self.starts.values()
            for one in entries
            if (one.pid, one.record, one.attempt) in crashes and one not in finishes
        )

    @property
    def crashed_at_once(self) -> frozenset[RecordId]:
        """Return the requests that crashed their process within ``AT_ONCE``, perhaps before the start was recorded."""
        crashes = [entry for entry in self.journal if entry.event == "crash"]
        ends = {(entry.pid, entry.record, entry.attempt): entry.time for entry in crashes}
        return frozenset(
            one.record for one in self.crashed if ends[one.pid, one.record, one.attempt] - one.time <= AT_ONCE
        )

    @property
    def repeated(self) -> frozenset[JournalEntry]:
        """Return the starts that were made again next, under the same number, by another process."""
        return frozenset(
            one
            for entries in self.starts.values()
            for one, other in itertools.pairwise(entries)
            if other.attempt == one.attempt and other.pid != one.pid
        )

    @property
    def answered(self) -> dict[RecordId, list[Answer]]:
        """Return the answers to each request."""
        found: dict[RecordId, list[Answer]] = defaultdict(list)
        for answer in self.answers:
            found[answer.record].append(answer)
        return found


def read_journal(path: Path) -> list[JournalEntry]:
    """Read the handlers' journal. Skip a line that was cut off because its writer was killed."""
    if not path.exists():
        return []
    entries = []
    for line in path.read_text(errors="replace").splitlines():
        parts = line.split(" ")
        if len(parts) == len(JournalEntry._fields) + 1:
            event, replica, pid, partition, offset, attempt, time, step = parts
            record = (int(partition), int(offset))
            entries.append(JournalEntry(event, replica, int(pid), record, int(attempt), float(time), int(step)))
    return entries
