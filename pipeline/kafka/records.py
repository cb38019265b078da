"""Records and tables: Spark applies the Arrow functions of ``pipeline.messages``."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.exactly_once.throttle import throttle
from pipeline.lake.schemas import BRONZE, OUTGOING, RECORD
from pipeline.messages.answers import decode_packed
from pipeline.messages.requests import encode_requests

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pipeline.messages.requests import Run


def request_records(manifest: DataFrame, run: Run) -> DataFrame:
    """Return the records of planned requests for the Kafka sink. Columns as ``OUTGOING``."""
    columns = manifest.select("sequence", "payload", "deadline")
    return columns.mapInArrow(functools.partial(encode_requests, run), OUTGOING)


def decode_records(records: DataFrame, dead_letter_topic: str) -> DataFrame:
    """Return bronze rows from records of the ack topic and the dead-letter topic. Columns as ``BRONZE``."""
    return _packed(records).mapInArrow(functools.partial(decode_packed, dead_letter_topic), BRONZE)


def throttled(records: DataFrame, rate: float | None) -> DataFrame:
    """Return the same records, at most ``rate`` per second from each task. None means no limit."""
    return records if rate is None else records.mapInArrow(functools.partial(throttle, rate), records.schema)


def _packed(records: DataFrame) -> DataFrame:
    """Return ``RECORD`` with the headers as a text.

    Spark adds up the bytes of a batch after each row. That is slowest by far for arrays of structs, even if all of
    them are null, as the headers of most answers are.
    """
    pairs = F.transform("headers", lambda h: F.struct(h["key"].alias("key"), F.base64(h["value"]).alias("value")))
    return records.select(*RECORD.fieldNames()).withColumn("headers", F.to_json(pairs))
