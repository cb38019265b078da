"""A stream's checkpoint, as Spark writes it: whose it is, and how far the stream has come."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.files import Files

Positions = dict[str, dict[int, int]]  # the next offset, by topic and partition


class Checkpoint:
    """The checkpoint in a folder, which may not be there yet."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.path = path

    def life(self) -> str | None:
        """The id that Spark has given it: a checkpoint made anew has another. None before the first start."""
        metadata = f"{self.path}/metadata"
        return str(self._files.read_json(metadata)["id"]) if self._files.exists(metadata) else None

    def is_final(self, batch: int) -> bool:
        """Whether a batch is committed, so that it will not be written again."""
        return self._files.exists(f"{self.path}/commits/{batch}")

    def positions(self) -> Positions | None:
        """Where the newest batch that was begun ends. None before the first."""
        batches = [int(entry.name) for entry in self._files.entries(f"{self.path}/offsets") if entry.name.isdecimal()]
        if not batches:
            return None
        # A line with the version, one about the batch, and one for each source, of which there is one.
        line = self._files.read(f"{self.path}/offsets/{max(batches)}").splitlines()[2]
        return {
            topic: {int(partition): int(offset) for partition, offset in partitions.items()}
            for topic, partitions in json.loads(line).items()
        }
