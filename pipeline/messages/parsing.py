"""Answers as columns: the messages of a batch are parsed at once and read column by column.

Parsing one message costs more than reading it. So the values of a batch are joined into one message that repeats
them. Only if protobuf refuses it are they parsed one by one, to find the invalid ones.
"""

from __future__ import annotations

import functools
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from worker.codec import Outcome, Response

if TYPE_CHECKING:
    from collections.abc import Sequence

_PREFIX = "OUTCOME_"
_OUTCOMES = {value.number: value.name.removeprefix(_PREFIX) for value in Outcome.DESCRIPTOR.values}
_MICROS = 1_000_000
_GREATEST_NANOS = 999_999_999
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799  # years 1 and 9999: the limits of protobuf and Spark
_TIME = pa.timestamp("us", tz="UTC")
_SEVEN_BITS = 127


def _repeated() -> Any:
    """Return the class of a message whose field 1 is a list of answers."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="pipeline/answers.proto", package="pipeline", syntax="proto3")
    file.dependency.append(Response.DESCRIPTOR.file.name)
    answer = f".{Response.DESCRIPTOR.full_name}"
    file.message_type.add(name="Answers").field.add(
        name="all", number=1, type=field.TYPE_MESSAGE, label=field.LABEL_REPEATED, type_name=answer
    )
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("pipeline.Answers"))


_ANSWERS = _repeated()


def parse(values: Sequence[bytes]) -> tuple[list[Response], dict[int, str]]:
    """Return the answers in these bytes, and the errors by index. An invalid answer is returned as an empty one."""
    parts: list[bytes] = [b""] * (2 * len(values))
    parts[::2], parts[1::2] = map(_head, map(len, values)), values
    try:
        return list(_ANSWERS.FromString(b"".join(parts)).all), {}
    except DecodeError:
        return _one_by_one(values)


@functools.lru_cache(4096)
def _head(length: int) -> bytes:
    """Return the bytes before a message of that length: the tag of field 1, and the length as a varint."""
    head = bytearray(b"\x0a")
    while length > _SEVEN_BITS:
        head.append(length & _SEVEN_BITS | _SEVEN_BITS + 1)
        length >>= 7
    head.append(length)
    return bytes(head)


def _one_by_one(values: Sequence[bytes]) -> tuple[list[Response], dict[int, str]]:
    answers, reasons = [], {}
    for number, value in enumerate(values):
        try:
            answers.append(Response.FromString(value))
        except DecodeError as error:
            answers.append(Response())
            reasons[number] = str(error) or type(error).__name__
    return answers, reasons


def columns(answers: list[Response]) -> dict[str, pa.Array]:
    """Return the columns of ``RESPONSE``. A field that is absent and has presence in protobuf is null."""
    return {
        "sequence": pa.array(_read(answers, "sequence"), pa.int32()),
        "isprocessed": pa.array(_read(answers, "isprocessed"), pa.bool_()),
        "outcome": pa.array(list(map(_outcome, _read(answers, "outcome"))), pa.string()),
        "result": pa.array(_read(answers, "result"), pa.binary()),
        **_error(answers),
        **_origin(answers),
        "attempt": pa.array(_read(answers, "attempt"), pa.int64()),
        "worker": pa.array(_read(answers, "worker"), pa.string()),
        "started_at": _time(answers, "started_at"),
        "finished_at": _time(answers, "finished_at"),
        "cpu_seconds": pa.array(_read(answers, "cpu_seconds"), pa.float64()),
        "requested_at": _time(answers, "requested_at"),
        "run": pa.array([run or None for run in _read(answers, "run")], pa.string()),
    }


def _read(messages: list[Any], name: str) -> list[Any]:
    return list(map(attrgetter(name), messages))


@functools.lru_cache(256)
def _outcome(number: int) -> str:
    return _OUTCOMES.get(number) or f"{_PREFIX}{number}"  # from a newer writer


def _error(answers: list[Response]) -> dict[str, pa.Array]:
    names = ("type", "message", "traceback")
    there = [answer.HasField("error") for answer in answers]
    if True not in there:
        return {f"error_{name}": pa.nulls(len(answers), pa.string()) for name in names}
    parts = [answer.error if has else None for answer, has in zip(answers, there, strict=True)]
    return {f"error_{name}": pa.array([p and getattr(p, name) for p in parts], pa.string()) for name in names}


def _origin(answers: list[Response]) -> dict[str, pa.Array]:
    parts = _read(answers, "origin")
    topics = _read(parts, "topic")
    absent = _absent(answers, "origin", topics)
    kinds = {"partition": pa.int32(), "offset": pa.int64()}
    others = {f"origin_{name}": pa.array(_read(parts, name), kind, mask=absent) for name, kind in kinds.items()}
    return {"origin_topic": pa.array(topics, pa.string(), mask=absent), **others}


def _absent(answers: list[Response], field: str, values: list[Any]) -> Any:
    """Return a mask of the answers that lack a message, or None if all have it.

    ``values`` are those of one of its fields. Only where that is not set does the answer need a check.
    """
    if all(values):
        return None
    return np.array([not value and not answer.HasField(field) for answer, value in zip(answers, values, strict=True)])


def _time(answers: list[Response], field: str) -> pa.Array:
    """Return times, with null for those that protobuf itself calls invalid."""
    parts = _read(answers, field)
    listed = _read(parts, "seconds")
    absent = _absent(answers, field, listed)
    seconds, nanos = np.array(listed, np.int64), np.array(_read(parts, "nanos"), np.int64)
    valid = (seconds >= _FIRST_SECOND) & (seconds <= _LAST_SECOND) & (nanos >= 0) & (nanos <= _GREATEST_NANOS)
    micros = np.where(valid, seconds, 0) * _MICROS + nanos // 1000
    return pa.array(micros, pa.int64(), mask=~valid if absent is None else ~valid | absent).cast(_TIME)
