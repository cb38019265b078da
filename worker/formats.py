"""The two formats of messages, chosen by ``WORKER_FORMAT``: binary protobuf, or protobuf's JSON mapping."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from google.protobuf import json_format

from worker.codec import (
    MalformedError,
    Request,
    Response,
    decode_request,
    decode_response,
    encode_request,
)

__all__ = ["FORMATS", "JSON", "PROTOBUF", "DecodeRequest", "Format", "decode_answer"]

DecodeRequest = Callable[[bytes | None], Request]

_FIELDS = {name for field in Request.DESCRIPTOR.fields for name in (field.name, field.json_name)}
_MAIN_FIELDS = {"payload", "sequence"}


class Format(NamedTuple):
    """Reads and writes messages. ``decode_request`` raises MalformedError."""

    decode_request: DecodeRequest
    encode_request: Callable[[int, str], bytes]
    encode_response: Callable[[Response], bytes]

    def sequence_of(self, value: bytes | None) -> int:
        """Return the sequence of the request in a record's value; 0 if the value is not a request."""
        try:
            return self.decode_request(value).sequence
        except MalformedError:
            return 0


def decode_answer(value: bytes | None) -> Response:
    """Return the ``Response`` in a record's value, in either format. Raise MalformedError for anything else.

    No binary answer begins with a brace: that would be field 15 as a group, which does not exist.
    """
    if value is None or not value.startswith(b"{"):
        return decode_response(value)
    try:
        return json_format.Parse(value, Response(), ignore_unknown_fields=True)
    except (json_format.ParseError, ValueError, RecursionError) as error:
        raise MalformedError(f"not a Response: {error}") from None


def _decode_json_request(value: bytes | None) -> Request:
    """Decode a JSON object of ``Request`` fields with ``payload`` or ``sequence``. Any other text is the payload."""
    if not value:
        raise MalformedError("null value" if value is None else "empty value")
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        raise MalformedError(f"not UTF-8 text: {error.reason} at byte {error.start + 1}") from None
    fields = _request_fields(text)
    try:
        return Request(payload=text) if fields is None else json_format.ParseDict(fields, Request())
    except (json_format.ParseError, ValueError) as error:  # lone surrogates raise ValueError
        raise MalformedError(f"not a Request: {error}") from None


def _request_fields(text: str) -> dict[str, Any] | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return fields if fields.keys() <= _FIELDS and fields.keys() & _MAIN_FIELDS else None


def _encode_json_request(sequence: int, payload: str) -> bytes:
    """Return the JSON. Raise ValueError if the sequence is outside int32."""
    return _json(Request(sequence=sequence, payload=payload))


def _json(message: Request | Response) -> bytes:
    """Return the JSON with fields at their defaults, so that readers find ``isprocessed`` even if it is false."""
    text = json_format.MessageToJson(
        message, indent=None, ensure_ascii=False, always_print_fields_with_no_presence=True
    )
    return text.encode()


PROTOBUF = Format(decode_request, encode_request, Response.SerializeToString)
JSON = Format(_decode_json_request, _encode_json_request, _json)
FORMATS = {"protobuf": PROTOBUF, "json": JSON}
