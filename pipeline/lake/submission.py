"""The record that ``submit`` keeps beside the manifest: the request topic, and where the answers can begin."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

from pipeline.lake.files import Files

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from pipeline.settings import Common

_NAME = "_submit.json"


@dataclass(frozen=True)
class Submission:
    """How the submit of a run began. Earlier versions recorded only ``semantics``.

    ``requests`` has ``topic`` and ``id``. ``topic_ids`` and ``ends`` describe the ack topic and the dead-letter topic
    when the first request was sent: ids by name, and offsets by name and partition.
    """

    run: str
    semantics: str
    requests: Mapping[str, str] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    ends: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    ack_topic: str = ""

    @classmethod
    def read(cls, spark: SparkSession, common: Common) -> Self | None:
        """Read the record. Return None if the job was not submitted from this lake."""
        files, path = Files(spark), f"{common.table('manifest').folder}/{_NAME}"
        if not files.exists(path):
            return None
        content: dict[str, Any] = {"run": "", **files.read_json(path)}
        content["ends"] = {
            topic: {int(partition): offset for partition, offset in offsets.items()}
            for topic, offsets in content.get("ends", {}).items()
        }
        return cls(**content)

    def write(self, spark: SparkSession, common: Common) -> None:
        """Write the record in place of an earlier one."""
        Files(spark).write_json(f"{common.table('manifest').folder}/{_NAME}", asdict(self))
