"""The settings of each command, as frozen plain values. This module does not import Spark.

Options come from the command line, else from ``PIPELINE_<OPTION>`` (see ``pipeline.cli.main``). The connection to
Kafka comes from the worker's ``KAFKA_*`` variables, secrets included, because options take no secrets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import Field

from pipeline.errors import SettingsError
from pipeline.kafka.client_options import client_options
from pipeline.uris import scheme_of
from worker.kafka.properties import common
from worker.settings import ClientSettings, values

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Iterator
    from typing import Self

    from pyspark.sql import DataFrame

    from worker.kafka.properties import Link, Properties

_NOT_ATOMIC = {"s3", "s3a", "s3n", "gs", "oss", "cos", "cosn", "swift", "wasb", "wasbs"}
_CATALOG = re.compile(r"\w+\.\w+")
PATH_CATALOG = "pipeline_lake"  # Iceberg's catalog name for a lake that is a folder
TableFormat = Literal["parquet", "delta", "iceberg"]
InputFormat = Literal["parquet", "csv", "json", "jdbc", "delta", "table"]
Semantics = Literal["exactly-once", "at-least-once"]
ProgressStyle = Literal["auto", "bar", "json", "off"]


class KafkaSettings(ClientSettings):
    """The worker's variables for brokers and topics. No group is required, because the pipeline joins none."""

    group: values.Text = Field("pipeline", validation_alias="KAFKA_CONSUMER_GROUP_ID")
    """the group of the workers; not used here"""
    shared: dict[str, str] = Field(default={}, repr=False)
    """``--kafka-option`` for both clients, by librdkafka's names"""
    librdkafka: dict[str, str] = Field(default={}, repr=False)
    """``--kafka-option`` for librdkafka, by name"""
    java: dict[str, str] = Field(default={}, repr=False)
    """``--kafka-option`` for Kafka's Java clients, by name"""

    def with_options(self, pairs: Iterable[tuple[str, str]]) -> Self:
        """Return the settings with these options. Raise SettingsError for one that the pipeline sets itself."""
        return self.model_copy(update=client_options(pairs)._asdict())

    def link(self) -> Link:
        """Return the link as ``ClientSettings`` does, with the options."""
        link = super().link()
        return replace(link, given={**link.given, **self.shared, **self.librdkafka})

    def java_given(self) -> dict[str, str]:
        """Return the properties to translate for Kafka's Java clients, by librdkafka's names, secrets included."""
        return {**super().link().given, **self.shared}

    def _misfits(self) -> Iterator[str]:
        yield from super()._misfits()
        if self.message_format != "protobuf":
            yield f"WORKER_FORMAT={self.message_format}: the pipeline reads and writes protobuf messages only: unset it"

    @property
    def request_topic(self) -> str:
        """Return the topic to which requests are sent: the first of the request topics."""
        return self.request_topics[0]

    @property
    def progress_topic(self) -> str:
        """Return the topic with the progress of submits and replays."""
        return f"{self.request_topic}.submitted"

    def client_properties(self) -> Properties:
        """Return the properties with which a librdkafka client reaches the brokers, secrets included."""
        return common(self.link(), "pipeline")


def in_catalog(lake: str) -> bool:
    """Return whether a lake is ``catalog.schema`` instead of a folder."""
    return _CATALOG.fullmatch(lake) is not None


class Table(NamedTuple):
    """A table of a lake. ``name`` is its path or its name in a catalog. ``folder`` contains its small files."""

    name: str
    format: TableFormat
    folder: str

    @property
    def in_catalog(self) -> bool:
        """Return whether Spark finds it by a name."""
        return self.name != self.folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """The settings that all commands share: the job, the place of its tables, and how to start Spark.

    ``lake`` is an absolute path, a URI without a final slash, or ``catalog.schema``. In the last case, ``files`` is the
    folder of everything but tables: metadata, checkpoints, audits.
    """

    job: str
    lake: str
    table_format: TableFormat = "parquet"
    files: str | None = None
    master: str | None = None  # None: spark-submit's, or local[*]
    progress: ProgressStyle = "auto"

    def __post_init__(self) -> None:
        """Raise SettingsError for a format that is not safe at the place of the lake."""
        scheme = scheme_of(self.lake)
        if self.table_format == "parquet" and scheme in _NOT_ATOMIC:
            raise SettingsError(
                f"plain Parquet is not safe on {scheme}://, which cannot rename a folder at once: "
                "use --table-format delta, or a lake on HDFS or a local disk"
            )
        if self.table_format == "iceberg" and scheme in _NOT_ATOMIC:
            raise SettingsError(
                f"an Iceberg table needs a catalog on {scheme}://, which cannot rename a file at once: "
                "use --lake catalog.schema, or --table-format delta"
            )
        if self.table_format == "parquet" and in_catalog(self.lake):
            raise SettingsError(f"--lake {self.lake} is a catalog: use --table-format delta or iceberg")

    @property
    def root(self) -> str:
        """Return the folder of everything but tables. Raise SettingsError if a catalog's is not known yet."""
        if not in_catalog(self.lake):
            return self.lake
        if self.files is None:
            raise SettingsError(f"the folder for the files of --lake {self.lake} is not known: give --files")
        return self.files

    def table(self, kind: str, part: str = "") -> Table:
        """Return a table by its kind. ``part`` names its part, by default that of the job: ``job=tuesday``."""
        part = part or f"job={self.job}"
        folder = f"{self.root}/{kind}/{part}"
        if in_catalog(self.lake):
            return Table(f"{self.lake}.`{kind}_{part.partition('=')[2]}`", self.table_format, folder)
        if self.table_format == "iceberg":
            return Table(f"{PATH_CATALOG}.`{kind}`.`{part}`", "iceberg", folder)
        return Table(folder, self.table_format, folder)

    @property
    def manifest(self) -> str:
        """Return the table of the planned requests."""
        return self.table("manifest").name

    @property
    def answers(self) -> str:
        """Return the table with one row for each answered request."""
        return self.table("answers").name

    @property
    def audit(self) -> str:
        """Return the folder of the verdict and the lists of exceptions."""
        return f"{self.root}/audit/job={self.job}"

    @property
    def checkpoint(self) -> str:
        """Return the folder of the checkpoint of ``collect``."""
        return f"{self.root}/checkpoints/job={self.job}"


_ENDINGS: dict[str, InputFormat] = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}


def format_of(uri: str) -> InputFormat:
    """Return the format by the name's suffix (before that of a compression) or scheme, else ``parquet``."""
    if uri.startswith("jdbc:"):
        return "jdbc"
    name = uri.rstrip("/").lower().removesuffix(".gz").removesuffix(".bz2")
    return _ENDINGS.get(PurePosixPath(name).suffix, "parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A table of work, and the roles of its columns.

    ``uri`` is its place, or its name in a catalog for the format ``table``. ``frame`` is the table itself, if given.
    """

    uri: str = ""
    frame: DataFrame | None = None
    format: InputFormat = "parquet"
    options: tuple[tuple[str, str], ...] = ()
    id: str
    payload: str
    deadline: str | None = None  # a column of RFC 3339 texts or timestamps
    parts: int | None = None  # None: from the number of rows


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSettings(Common):
    """Settings of ``pipeline plan``. With ``new_run``, other data may replace the planned data."""

    source: Source
    new_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitSettings(Common):
    """Settings of ``pipeline submit``. ``chunk`` is in requests, ``rate`` in requests per second."""

    kafka: KafkaSettings
    source: Source | None = None
    semantics: Semantics = "exactly-once"
    chunk: int = 10_000
    rate: float | None = None
    dry_run: bool = False
    resume: bool = True
    new_run: bool = False
    resend: Literal["missing"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectSettings(Common):
    """Settings of ``pipeline collect``: one of ``available_now`` and ``follow``. ``trigger`` is in seconds."""

    kafka: KafkaSettings
    available_now: bool
    follow: bool
    trigger: float = 10.0
    max_offsets: int = 5_000_000
    allow_data_loss: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswersSettings(Common):
    """Settings of ``pipeline answers``. Without ``kafka``, the times when requests were sent are unknown."""

    kafka: KafkaSettings | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings(Common):
    """Settings of ``pipeline audit``. ``out`` defaults to the job's folder under ``audit``. ``wait`` is in seconds.

    ``after`` is the job whose handlers sent the requests, ``follow_ups`` for each of its successful answers.
    """

    kafka: KafkaSettings
    out: str | None = None
    html: bool = False
    wait: float = 0.0
    after: str | None = None
    follow_ups: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings(Common):
    """Settings of ``pipeline run``. ``timeout`` limits the wait for answers, in seconds; None means no limit."""

    kafka: KafkaSettings
    source: Source | None = None
    semantics: Semantics = "exactly-once"
    chunk: int = 10_000
    rate: float | None = None
    new_run: bool = False
    out: str | None = None
    timeout: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings(Common):
    """Settings of ``pipeline replay``. ``where`` is an SQL condition on the columns of the dead letters."""

    kafka: KafkaSettings
    where: str | None = None
    max_replays: int = 3
    chunk: int = 10_000
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactSettings(Common):
    """Settings of ``pipeline compact``: days before ``before`` (UTC) are closed. Needs ``kafka`` or a submitted job."""

    kafka: KafkaSettings | None = None
    before: dt.date
