"""Selects the requests for ``worker cancel``: by origin, by key, or by job."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import click

from worker.cli.backlog import origin_of
from worker.client.ids import InvalidIdError, TaskId
from worker.core.task_state import Origin

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from worker.cli.backlog import Backlog
    from worker.core.model import Headers
    from worker.core.task_state import TaskState

JOB_HEADER = "job"  # of the requests of the pipeline


class Targets(NamedTuple):
    """``keys`` has the key of each request by origin, None if unknown. ``missing`` has names without a request."""

    keys: dict[Origin, str | None]
    answered: set[Origin]
    missing: list[str]


def by_origin(texts: Iterable[str], backlog: Backlog, running: Collection[Origin]) -> Targets:
    """Return the requests at these origins or with these ids. Raise UsageError if one is malformed or missing."""
    keys: dict[Origin, str | None] = {}
    for text in texts:
        try:
            origin = Origin(*TaskId.parse(text).origin)
        except InvalidIdError:
            raise click.UsageError(f"{text[:200]!r} must be topic/partition/offset, such as requests/0/17") from None
        backlog.check(origin)
        keys[origin] = None
    return Targets(keys, {one for one in keys if one not in running and backlog.answered(one)}, [])


def by_key(names: Iterable[str], backlog: Backlog, states: Iterable[TaskState]) -> Targets:
    """Return the unanswered requests with these keys, or else the answered ones."""
    wanted = {os.fsencode(name): name for name in names}
    return _find(set(wanted.values()), lambda key, _: wanted.get(key or b""), backlog, states)


def of_job(job: str, backlog: Backlog, states: Iterable[TaskState]) -> Targets:
    """Return the requests of a job of the pipeline or of ``worker submit --job``."""
    prefix = os.fsencode(f"{job}/")

    def name(key: bytes | None, headers: Headers) -> str | None:
        of_job = next((value for header, value in headers if header == JOB_HEADER), None)
        found = (key or b"").startswith(prefix) if of_job is None else of_job == os.fsencode(job)
        return job if found else None

    return _find({job}, name, backlog, states)


def _find(
    names: set[str],
    name_of: Callable[[bytes | None, Headers], str | None],
    backlog: Backlog,
    states: Iterable[TaskState],
) -> Targets:
    keys: dict[Origin, str | None] = {}
    missing = set(names)

    def take(origin: Origin, key: bytes | None, headers: Headers) -> None:
        name = name_of(key, headers)
        if name is not None:
            keys[origin] = (key or b"").decode(errors="backslashreplace")
            missing.discard(name)

    for state in states:  # also of partitions that have moved, whose offsets are committed
        take(state.origin, state.key, ())
    for record in backlog.unanswered():
        take(origin_of(record), record.key, record.headers)
    if not missing:
        return Targets(keys, set(), [])
    open_ones = set(keys)
    for record in backlog.earlier():  # an unused key is a mistake, but a key with an answer is not
        if name_of(record.key, record.headers) in missing:
            take(origin_of(record), record.key, record.headers)
            if not missing:
                break
    return Targets(keys, set(keys) - open_ones, sorted(missing))
