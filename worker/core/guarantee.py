"""What each delivery guarantee means, as values. Only this module interprets the setting."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Guarantee:
    """The rules in which the guarantees differ.

    If ``transactional``, answers and offsets are committed in one transaction. If ``starts_once``, an attempt is never
    repeated: its offset is committed before it starts, so this process has to answer it whatever happens, even if the
    partition has moved.
    """

    name: str
    transactional: bool = False
    starts_once: bool = False


AT_LEAST_ONCE = Guarantee("at-least-once")
AT_MOST_ONCE = Guarantee("at-most-once", starts_once=True)
EXACTLY_ONCE = Guarantee("exactly-once", transactional=True)

GUARANTEES = {guarantee.name: guarantee for guarantee in (AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE)}
