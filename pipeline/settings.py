"""The settings of each command, frozen. Plain values: nothing here imports Spark.

Options come from the command line, else from ``PIPELINE_<OPTION>`` (see ``pipeline.cli``); how to reach Kafka comes
from the worker's own ``KAFKA_*`` variables, secrets included, which no option takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from worker.kafka.properties import common
from worker.settings import ClientSettings, values

if TYPE_CHECKING:
    import datetime as dt

    from worker.kafka.properties import Properties

TableFormat = Literal["parquet", "delta"]
InputFormat = Literal["parquet", "csv", "json", "jdbc", "delta"]
Semantics = Literal["exactly-once", "at-least-once"]
ProgressStyle = Literal["auto", "bar", "json", "off"]


class KafkaSettings(ClientSettings):
    """The worker's variables for brokers and topics; the pipeline joins no group, so it need not be named."""

    group: values.Text = Field("pipeline", validation_alias="KAFKA_CONSUMER_GROUP_ID")
    """the group of the workers; not used here"""

    @property
    def request_topic(self) -> str:
        """Where requests are sent: the first of the request topics."""
        return self.request_topics[0]

    @property
    def ledger_topic(self) -> str:
        """Where it is kept how far each part of a job was submitted."""
        return f"{self.request_topic}.submitted"

    def client_properties(self) -> Properties:
        """How a librdkafka client reaches the brokers, secrets included."""
        return common(self.link(), "pipeline")


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """What every command knows: the job, where its tables are, and how Spark is started.

    ``lake`` is an absolute path or a URI, without a slash at its end.
    """

    job: str
    lake: str
    table_format: TableFormat = "parquet"
    master: str | None = None  # None: spark-submit's, or local[*]
    progress: ProgressStyle = "auto"

    def _table(self, name: str) -> str:
        return f"{self.lake}/{name}/job={self.job}"

    @property
    def manifest(self) -> str:
        """The planned requests."""
        return self._table("manifest")

    @property
    def bronze(self) -> str:
        """Every record of the ack and dead-letter topics."""
        return self._table("bronze")

    @property
    def answers(self) -> str:
        """One row for each request answered."""
        return self._table("answers")

    @property
    def audit(self) -> str:
        """The verdict and the lists of exceptions."""
        return self._table("audit")

    @property
    def checkpoint(self) -> str:
        """Where the stream of ``collect`` stands."""
        return self._table("checkpoints")


_ENDINGS: dict[str, InputFormat] = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}


def format_of(uri: str) -> InputFormat:
    """The format that a name's ending, before that of a compression, or its scheme stands for; else ``parquet``."""
    if uri.startswith("jdbc:"):
        return "jdbc"
    name = uri.rstrip("/").lower().removesuffix(".gz").removesuffix(".bz2")
    return _ENDINGS.get(PurePosixPath(name).suffix, "parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A table of work: where it is, and which of its columns are what."""

    uri: str
    format: InputFormat = "parquet"
    options: tuple[tuple[str, str], ...] = ()
    id: str
    payload: str
    deadline: str | None = None  # column of RFC 3339 texts or timestamps
    parts: int | None = None  # None: from the number of rows


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSettings(Common):
    """``pipeline plan``."""

    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitSettings(Common):
    """``pipeline submit``. ``chunk`` is in requests, ``rate`` in requests a second."""

    kafka: KafkaSettings
    source: Source | None = None
    semantics: Semantics = "exactly-once"
    chunk: int = 10_000
    rate: float | None = None
    dry_run: bool = False
    resume: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectSettings(Common):
    """``pipeline collect``: one of ``available_now`` and ``follow``. ``trigger`` is in seconds."""

    kafka: KafkaSettings
    available_now: bool
    follow: bool
    trigger: float = 10.0
    max_offsets: int = 200_000
    allow_data_loss: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswersSettings(Common):
    """``pipeline answers``. Without ``kafka`` it is not known when requests were sent."""

    kafka: KafkaSettings | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings(Common):
    """``pipeline audit``. ``out`` defaults to the job's folder under ``audit``; ``wait`` is in seconds."""

    kafka: KafkaSettings
    out: str | None = None
    html: bool = False
    wait: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings(Common):
    """``pipeline replay``. ``where`` is SQL over the columns of the dead letters."""

    kafka: KafkaSettings
    where: str | None = None
    max_replays: int = 3
    chunk: int = 10_000
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactSettings(Common):
    """``pipeline compact``: days before ``before`` (UTC) are closed."""

    before: dt.date
