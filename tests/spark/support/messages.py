"""The messages of other writers and readers: older ones that know two fields, and newer ones that know more."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

from worker.codec import Response

_CORE = (("sequence", 1, Field.TYPE_INT32),)


def _messages(name: str, *kinds: tuple[str, tuple[tuple[str, int, Any], ...]]) -> list[Any]:
    """Return message classes with these fields, in a separate pool."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{name}.proto", package=name, syntax="proto3")
    for kind, fields in kinds:
        message = file.message_type.add(name=kind)
        for field, number, of_type in fields:
            message.field.add(name=field, number=number, type=of_type, label=Field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return [message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{name}.{kind}")) for kind, _ in kinds]


OldRequest, OldResponse = _messages(
    "old",
    ("Request", (*_CORE, ("payload", 2, Field.TYPE_STRING))),
    ("Response", (*_CORE, ("isprocessed", 2, Field.TYPE_BOOL))),
)
(NewerFields,) = _messages(
    "newer",
    (
        "Fields",
        (
            ("outcome", 3, Field.TYPE_INT32),  # any number, like enums of newer writers
            ("priority", 12, Field.TYPE_INT64),
            ("weight", 13, Field.TYPE_DOUBLE),
            ("labels", 14, Field.TYPE_STRING),
            ("short", 2000, Field.TYPE_FIXED32),
        ),
    ),
)
RESPONSE_FIELDS = [field.name for field in Response.DESCRIPTOR.fields]
