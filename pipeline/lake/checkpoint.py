"""A stream's checkpoint as Spark writes it: the id of its query, and the position of the stream."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.lake.files import Files

Positions = dict[str, dict[int, int]]  # the next offset, by topic and partition


class Checkpoint:
    """The checkpoint in a folder, which may not exist yet."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.path = path

    def query_id(self) -> str | None:
        """Return the id that Spark gave it, or None before the first start. A recreated checkpoint has another id."""
        metadata = f"{self.path}/metadata"
        return str(self._files.read_json(metadata)["id"]) if self._files.exists(metadata) else None

    def is_final(self, batch: int) -> bool:
        """Return whether a batch is committed, so that it will not be written again.

        Spark keeps only the last 100 commits. Batches before the newest one are committed, too.
        """
        newest = self._newest("commits")
        return newest is not None and batch <= newest

    def batches(self) -> int:
        """Return how many batches have begun."""
        newest = self._newest("offsets")
        return 0 if newest is None else newest + 1

    def positions(self) -> Positions | None:
        """Return where the newest batch that has begun ends, or None before the first."""
        return self._positions(self._newest("offsets"))

    def committed(self) -> Positions:
        """Return where the newest committed batch ends: beyond its last record if transaction markers follow."""
        return self._positions(self._newest("commits")) or {}

    def _newest(self, log: str) -> int | None:
        names = [entry.name for entry in self._files.entries(f"{self.path}/{log}")]
        return max((int(name) for name in names if name.isdecimal()), default=None)

    def _positions(self, batch: int | None) -> Positions | None:
        if batch is None:
            return None
        # A line with the version, one about the batch, and one for each source. Here there is one source.
        line = self._files.read(f"{self.path}/offsets/{batch}").splitlines()[2]
        return {
            topic: {int(partition): int(offset) for partition, offset in partitions.items()}
            for topic, partitions in json.loads(line).items()
        }
