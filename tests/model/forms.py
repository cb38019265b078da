"""The forms of the protocol that are explored. The usual forms take a minute, and the large ones much longer."""

from __future__ import annotations

from tests.model.protocol import FAULTS, Detaching

ONE = (1,)
FIRST = frozenset({0})

USUAL = {
    "three requests": Detaching((2, 1), faults=2, long=FIRST),
    "three requests in order": Detaching((2, 1), faults=1, long=frozenset({0, 1}), ordered=True),
    "two detached tasks": Detaching((1, 1), faults=1, long=frozenset({0, 1})),
    "three faults": Detaching(ONE, faults=3, long=FIRST, releases=True, deletes=True, split=True),
    "no deposed coordinator": Detaching(
        (1, 1),
        faults=2,
        long=FIRST,
        kinds=FAULTS - {"stale read"},
        releases=True,
        without=frozenset({"write before a read"}),
    ),
    "three processes": Detaching(ONE, processes=3, faults=2, long=FIRST),
    "at least once": Detaching(ONE, faults=3, long=FIRST, guarantee="at-least-once", releases=True),
    "at most once, two detached tasks": Detaching((2,), faults=2, long=frozenset({0, 1}), guarantee="at-most-once"),
    "at most once in order": Detaching(
        (2,), faults=2, long=frozenset({0, 1}), guarantee="at-most-once", ordered=True, kinds=frozenset({"crash"})
    ),
    "at most once": Detaching((1, 1), faults=2, long=FIRST, guarantee="at-most-once"),
}
LARGE = {
    "three requests, released and deleted": Detaching((2, 1), faults=2, long=FIRST, releases=True, deletes=True),
    "three requests, three faults": Detaching((2, 1), faults=3, long=FIRST),
    "two detached tasks, released": Detaching((1, 1), faults=1, long=frozenset({0, 1}), releases=True),
    "three processes, three faults": Detaching(ONE, processes=3, faults=3, long=FIRST),
}
