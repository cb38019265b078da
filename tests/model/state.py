"""The state of the model at one time: a broker and some worker processes, as hashable, ordered values.

Requests are numbered. The status of a request is a number, both in the committed metadata and in an owner's memory.
``HELD + i`` means that process ``i`` runs the request although its partition may have moved. An empty tuple means none.
"""

from __future__ import annotations

from typing import Final, NamedTuple

OPEN: Final = 0
SETTLED: Final = 1  # every process skips it
VACATED: Final = 2  # the commit that no longer names a holder is confirmed
LOOKED: Final = 3  # the owner has written beside the mark when there was no mark yet
VACATING: Final = 4  # the commit that no longer names a holder is not confirmed
CLEARED: Final = 5  # at-most-once: the commit that precedes the start is confirmed
GONE: Final = 6  # the holder's process no longer exists
HELD: Final = 7

# Steps of a holder that ends a detached task, in this order.
RUNNING: Final = 0
MARKED: Final = 1  # its mark is pending in its open transaction
WROTE: Final = 2  # its group's real coordinator has taken a write in that transaction
ALLOWED: Final = 3  # the metadata has named it, so it may commit
ANSWERED: Final = 4  # without transactions: there is an answer, but no mark
RELEASING: Final = 5  # it will not answer, but its mark does not say so yet

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
    views: tuple[Statuses, ...]  # what it remembers of each partition that it believes it owns


class State(NamedTuple):
    metadata: tuple[Statuses, ...]  # committed, by partition
    owners: tuple[int, ...]  # by partition; -1: none
    marks: tuple[int, ...]  # committed, by request
    answers: tuple[int, ...]  # visible ones, by request
    starts: tuple[int, ...]  # by request; counted at-most-once only
    processes: tuple[Process, ...]
    faults: int  # that may still happen
