"""The Arrow schemas of executors' input and output. ``pipeline.lake.schemas`` has the same as Spark types."""

from __future__ import annotations

import pyarrow as pa

_TIME = pa.timestamp("us", tz="UTC")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

# A record from Spark's Kafka source, without the timestamp type, which is always the same here.
RECORD = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", _TIME),
        ("headers", HEADERS),
    ]
)

# A record for the Kafka sink.
OUTGOING = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("headers", HEADERS)])

# The fields of an answer, and those from the headers of a dead letter.
RESPONSE = pa.schema(
    [
        ("sequence", pa.int32()),
        ("isprocessed", pa.bool_()),
        ("outcome", pa.string()),
        ("result", pa.binary()),
        ("error_type", pa.string()),
        ("error_message", pa.string()),
        ("error_traceback", pa.string()),
        ("origin_topic", pa.string()),
        ("origin_partition", pa.int32()),
        ("origin_offset", pa.int64()),
        ("attempt", pa.int64()),  # unsigned, 32 bits
        ("worker", pa.string()),
        ("started_at", _TIME),
        ("finished_at", _TIME),
        ("cpu_seconds", pa.float64()),
        ("requested_at", _TIME),
        ("run", pa.string()),
    ]
)

# One row for each record of the ack topic and the dead-letter topic, from any writer.
BRONZE = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", _TIME),
        ("kind", pa.string()),  # ANSWER or DEAD_LETTER
        ("key", pa.binary()),
        ("key_text", pa.string()),
        ("job", pa.string()),
        ("request_sequence", pa.int32()),
        ("headers", HEADERS),
        *RESPONSE,
        ("decode_error", pa.string()),
        ("raw", pa.binary()),
        ("date", pa.date32()),
    ]
)
ANSWER = "answer"
DEAD_LETTER = "dead_letter"
