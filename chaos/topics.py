"""The topics of a run."""

from __future__ import annotations

from typing import NamedTuple


class Topics(NamedTuple):
    """The names of the topics of a run."""

    requests: str
    answers: str
    dead_letters: str
    states: str
