"""The values that all modules use."""

from __future__ import annotations

from worker.core.claim import Claim
from worker.core.model import Partition, Record, Task


def test_the_size_of_a_task_includes_its_headers() -> None:
    """Headers alone may fill the memory."""
    headers = (("name", b"12345"), ("empty", None))
    record = Record(Partition("requests", 0), 0, b"key", b"value", headers)
    assert Task(record, Claim()).size == 3 + 5 + (4 + 5) + 5
