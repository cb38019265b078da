"""The messages as ``proto/task.proto`` defines them, built from that file and not from the program's own code."""

from __future__ import annotations

import functools
import importlib
import tempfile
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

ROOT = Path(__file__).parents[3]
CORE = """
syntax = "proto3";
message Request { int32 sequence = 1; string payload = 2; }
message Response { int32 sequence = 1; bool isprocessed = 2; }
"""
_protoc: Any = importlib.import_module("grpc_tools.protoc")  # it has no types
OUTCOMES = {1: "OK", 2: "FAILED", 3: "DEAD_LETTERED", 4: "EXPIRED", 5: "CANCELLED"}


def _compile(folder: Path) -> descriptor_pool.DescriptorPool:
    with tempfile.NamedTemporaryFile(suffix=".descriptors") as file:
        includes = Path(_protoc.__file__).parent / "_proto"
        arguments = ["protoc", f"-I{folder}", f"-I{includes}", "--include_imports", f"--descriptor_set_out={file.name}"]
        assert _protoc.main([*arguments, "task.proto"]) == 0
        files = descriptor_pb2.FileDescriptorSet.FromString(Path(file.name).read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for one in files.file:
        pool.Add(one)
    return pool


@functools.cache
def _pool(*, core: bool) -> descriptor_pool.DescriptorPool:
    if not core:
        return _compile(ROOT / "proto")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "task.proto").write_text(CORE)
        return _compile(Path(folder))


@functools.cache
def message(name: str, *, core: bool = False) -> Any:
    """The class of a message; ``core``: as somebody sees it who knows fields 1 and 2 only."""
    return message_factory.GetMessageClass(_pool(core=core).FindMessageTypeByName(name))


def request(sequence: int, payload: str) -> bytes:
    """An encoded ``Request``, by a writer that knows fields 1 and 2."""
    encoded: bytes = message("Request", core=True)(sequence=sequence, payload=payload).SerializeToString()
    return encoded
