"""The protobuf messages, built directly from ``proto/``, so that a defect of the worker's codec cannot hide."""

from __future__ import annotations

import functools
import importlib
import json
import tempfile
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

_PROTO = Path(__file__).parents[1] / "proto"
_protoc: Any = importlib.import_module("grpc_tools.protoc")  # the package has no types
OUTCOMES = {1: "OK", 2: "FAILED", 3: "DEAD_LETTERED", 4: "EXPIRED", 5: "CANCELLED"}


def compiled(folder: Path, *names: str) -> descriptor_pool.DescriptorPool:
    """Return the messages of these proto files in ``folder``."""
    includes = Path(_protoc.__file__).parent / "_proto"
    with tempfile.NamedTemporaryFile(suffix=".descriptors") as file:
        arguments = ["protoc", f"-I{folder}", f"-I{includes}", "--include_imports", f"--descriptor_set_out={file.name}"]
        if _protoc.main([*arguments, *names]) != 0:
            raise RuntimeError(f"protoc cannot compile {names} in {folder}")
        files = descriptor_pb2.FileDescriptorSet.FromString(Path(file.name).read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for one in files.file:
        pool.Add(one)
    return pool


@functools.cache
def _pool() -> descriptor_pool.DescriptorPool:
    return compiled(_PROTO, "task.proto", "state.proto")


@functools.cache
def message(name: str) -> Any:
    """Return the class of a message by its name in the proto file."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(name))


def request(sequence: int, payload: str) -> bytes:
    """Return an encoded ``Request``."""
    encoded: bytes = message("Request")(sequence=sequence, payload=payload).SerializeToString()
    return encoded


def json_request(sequence: int, payload: str) -> bytes:
    """Return a ``Request`` as JSON."""
    return json.dumps({"sequence": sequence, "payload": payload}).encode()


def job_key(job: str, number: int) -> bytes:
    """Return the key of a request of a job of the pipeline."""
    return f"{job}/{number:010}".encode()


def of_job(key: bytes | None, job: str) -> bool:
    """Return whether it is the key of a request of this job."""
    return key is not None and key.startswith(f"{job}/".encode())


def sequence_of(value: bytes) -> int:
    """Return the sequence of a request in either format. Raise ValueError or DecodeError for other bytes."""
    if value.startswith(b"{"):
        return int(json.loads(value).get("sequence", 0))
    found: int = message("Request").FromString(value).sequence
    return found


def payload_of(value: bytes) -> str:
    """Return the payload of a request in either format. Raise ValueError or DecodeError for other bytes."""
    if value.startswith(b"{"):
        return str(json.loads(value)["payload"])
    return str(message("Request").FromString(value).payload)


def response(value: bytes) -> Any:
    """Return the ``Response`` in either format. Raise ValueError or DecodeError for other bytes."""
    if value.startswith(b"{"):  # an answer in protobuf never does
        return json_format.Parse(value, message("Response")())
    return message("Response").FromString(value)
