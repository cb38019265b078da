"""What the model's world looks like at one moment: a broker and some worker processes, as hashable, ordered values.

Requests are numbered. The status of a request is a number, in the committed metadata and in an owner's memory alike.
``HELD + i`` means: process ``i`` goes on with it although its partition may have moved. An empty tuple means none.
"""

from __future__ import annotations

from typing import Final, NamedTuple

OPEN: Final = 0
SETTLED: Final = 1  # everybody skips it
VACATED: Final = 2  # a commit that names no holder any more is confirmed
LOOKED: Final = 3  # the owner has written beside the mark, when there was no mark yet
VACATING: Final = 4  # the commit that names no holder any more is not confirmed
CLEARED: Final = 5  # at-most-once: the commit that precedes the start is confirmed
GONE: Final = 6  # the holder's process does not exist any more
HELD: Final = 7

# Steps of a holder that ends a detached task, in this order.
RUNNING: Final = 0
MARKED: Final = 1  # its mark is pending in its open transaction
WROTE: Final = 2  # its group's real coordinator has taken a write in that transaction
ALLOWED: Final = 3  # the metadata has named it: it may commit
ANSWERED: Final = 4  # without transactions: the answer is there, the mark is not
RELEASING: Final = 5  # it will not answer, and its mark does not say so yet

# Committed marks, as the holder that the metadata names has left them.
NO_MARK: Final = 0
MARK_SETTLED: Final = 1
MARK_RELEASED: Final = 2

Statuses = tuple[int, ...]


class Transaction(NamedTuple):
    """An open transaction with the answer to ``request``, and the mark or the metadata of its partition."""

    request: int
    metadata: Statuses = ()  # of the request's partition; empty: a mark
    may_commit: bool = False  # a commit may be on its way


class Running(NamedTuple):
    request: int
    detached: bool = False
    step: int = RUNNING


class Process(NamedTuple):
    alive: bool
    member: bool  # of the group, in the broker's eyes
    parked: bool  # subscribed to the control topic instead of the request topic
    task: Running | tuple[()]
    transaction: Transaction | tuple[()]
    views: tuple[Statuses, ...]  # what it remembers of each partition it believes it owns


class State(NamedTuple):
    metadata: tuple[Statuses, ...]  # committed, by partition
    owners: tuple[int, ...]  # by partition; -1: nobody
    marks: tuple[int, ...]  # committed, by request
    answers: tuple[int, ...]  # visible ones, by request
    starts: tuple[int, ...]  # by request; counted at-most-once only
    processes: tuple[Process, ...]
    faults: int  # that may still happen
