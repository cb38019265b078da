"""The right to settle requests."""

from __future__ import annotations


class Claim:
    """The right to work on a task.

    While ``valid``, the task may be answered and committed. While ``leaving``, no new task may start under this claim.
    The poll thread changes claims; other threads only read them.
    """

    __slots__ = ("leaving", "valid")

    def __init__(self) -> None:
        self.valid = True
        self.leaving = False

    def leave(self) -> None:
        """Start no more tasks under this claim. Running tasks may still be settled."""
        self.leaving = True

    def end(self) -> None:
        """Settle no more tasks under this claim."""
        self.leaving = True
        self.valid = False
