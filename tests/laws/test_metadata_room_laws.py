"""Law: the commit metadata stay within the limit, whatever happens to the tasks that were allowed to start."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from worker.core.commit_metadata import LIMIT, CommitMetadata, Detached, encode
from worker.core.model import Partition, Record
from worker.core.owned_partition import OwnedPartition


@given(
    bits=st.integers(2, 40),
    answered=st.integers(0, 300),
    failing=st.sampled_from([0.0, 0.3, 0.7, 1.0]),
    detaching=st.sampled_from([0.0, 0.05]),
    chunk=st.sampled_from([1, 50, 2_048]),
    seed=st.integers(0, 2**32),
)
def test_the_commit_metadata_never_exceed_the_limit(
    bits: int, answered: int, failing: float, detaching: float, chunk: int, seed: int
) -> None:
    """A detached task keeps the committed offset where it is, and all other offsets are far above it."""
    chance, far = random.Random(seed), 1 << bits
    completed = tuple((far + 2 * n + 1, far + 2 * n + 2) for n in range(answered))
    left = CommitMetadata(detached={0: Detached(1, "a00000001")}, completed=completed)
    owned = OwnedPartition(Partition("r", 0), start_offset=0, metadata=left, ordering="unordered")
    for offset in [0, *range(far, far + 700)]:
        owned.admit(Record(owned.partition, offset, None, b"x"))
    for now in range(3):
        owned.recorded(_characters(owned))
        while tasks := owned.take(chunk, float(now), below=float("inf")):
            for task in tasks:
                task.attempt += 1
                if chance.random() < detaching and owned.can_detach(task):
                    owned.detach(task, "a00000002")
                elif chance.random() < failing:
                    owned.fail(task, "ConnectionError")
                    owned.requeue(task, now + 1.0)
                else:
                    owned.answering(task)
                    owned.answered(task.record.offset)
        assert _characters(owned) <= LIMIT


def _characters(owned: OwnedPartition) -> int:
    """Return the length of the text. Like the committer, leave out the types of errors if they do not fit."""
    recorded = owned.metadata(clean=False, transaction_id="ffffffff")
    text = encode(recorded, owned.position)
    if len(text) <= LIMIT:
        return len(text)
    return len(encode(CommitMetadata(**{name: getattr(recorded, name) for name in _FIELDS}), owned.position))


_FIELDS = set(CommitMetadata.__dataclass_fields__) - {"errors"}
