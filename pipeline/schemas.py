"""The tables' schemas. Every table is written and read with one of these; nothing is inferred.

What a column means stands in docs/pipeline.md.
"""

from __future__ import annotations

from pyspark.sql import types as T  # noqa: N812 - its customary name

HEADERS = T.ArrayType(
    T.StructType([T.StructField("key", T.StringType()), T.StructField("value", T.BinaryType())]),
)


def _table(*columns: tuple[str, T.DataType]) -> T.StructType:
    # Nullable throughout: files do not keep the other promise, and Spark would believe it.
    return T.StructType([T.StructField(name, kind) for name, kind in columns])


# One row for each planned request. ``sequence`` is dense: 0 to the number of rows less one.
MANIFEST = _table(
    ("sequence", T.IntegerType()),
    ("source_id", T.StringType()),
    ("payload", T.StringType()),
    ("digest", T.StringType()),  # SHA-256 of the payload's UTF-8 bytes, in hex
    ("part", T.IntegerType()),
    ("deadline", T.StringType()),
)

# A record as the Kafka source gives it with headers, without the timestamp's type, which is always the same here.
RECORD = _table(
    ("key", T.BinaryType()),
    ("value", T.BinaryType()),
    ("topic", T.StringType()),
    ("partition", T.IntegerType()),
    ("offset", T.LongType()),
    ("timestamp", T.TimestampType()),
    ("headers", HEADERS),
)

# A record for the Kafka sink.
OUTGOING = _table(
    ("key", T.BinaryType()),
    ("value", T.BinaryType()),
    ("headers", HEADERS),
)

# A record of a request topic.
REQUEST = _table(
    *((field.name, field.dataType) for field in RECORD if field.name != "value"),
    ("key_text", T.StringType()),
    ("job", T.StringType()),
    ("request_sequence", T.IntegerType()),
    ("sequence", T.IntegerType()),
    ("payload", T.StringType()),
    ("decode_error", T.StringType()),
)

# What the value of an answer says; also what is kept of the headers of a dead letter.
RESPONSE = _table(
    ("sequence", T.IntegerType()),
    ("isprocessed", T.BooleanType()),
    ("outcome", T.StringType()),
    ("result", T.BinaryType()),
    ("error_type", T.StringType()),
    ("error_message", T.StringType()),
    ("error_traceback", T.StringType()),
    ("origin_topic", T.StringType()),
    ("origin_partition", T.IntegerType()),
    ("origin_offset", T.LongType()),
    ("attempt", T.LongType()),  # unsigned, 32 bits
    ("worker", T.StringType()),
    ("started_at", T.TimestampType()),
    ("finished_at", T.TimestampType()),
    ("cpu_seconds", T.DoubleType()),
)

# One row for each record of the ack topic and of the dead-letter topic, whoever wrote it.
BRONZE = _table(
    ("topic", T.StringType()),
    ("partition", T.IntegerType()),
    ("offset", T.LongType()),
    ("timestamp", T.TimestampType()),
    ("kind", T.StringType()),  # ANSWER or DEAD_LETTER
    ("key", T.BinaryType()),
    ("key_text", T.StringType()),
    ("job", T.StringType()),
    ("request_sequence", T.IntegerType()),
    ("headers", HEADERS),
    *((field.name, field.dataType) for field in RESPONSE),
    ("decode_error", T.StringType()),
    ("raw", T.BinaryType()),
    ("date", T.DateType()),
)
ANSWER = "answer"
DEAD_LETTER = "dead_letter"

# One row for each planned request that has an answer.
ANSWERS = _table(
    ("sequence", T.IntegerType()),
    ("source_id", T.StringType()),
    ("outcome", T.StringType()),
    ("isprocessed", T.BooleanType()),
    ("result", T.BinaryType()),
    ("result_text", T.StringType()),
    ("error_type", T.StringType()),
    ("error_message", T.StringType()),
    ("attempt", T.LongType()),
    ("worker", T.StringType()),
    ("requested_at", T.TimestampType()),
    ("started_at", T.TimestampType()),
    ("finished_at", T.TimestampType()),
    ("answered_at", T.TimestampType()),
    ("cpu_seconds", T.DoubleType()),
    ("origin_topic", T.StringType()),
    ("origin_partition", T.IntegerType()),
    ("origin_offset", T.LongType()),
    ("ack_partition", T.IntegerType()),
    ("ack_offset", T.LongType()),
)
