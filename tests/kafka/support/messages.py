"""The messages of ``proto/task.proto``, built from that file instead of the program's code."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pool, message_factory

from chaos.messages import compiled

ROOT = Path(__file__).parents[3]
CORE = """
syntax = "proto3";
message Request { int32 sequence = 1; string payload = 2; }
message Response { int32 sequence = 1; bool isprocessed = 2; }
"""


@functools.cache
def _pool(*, core: bool) -> descriptor_pool.DescriptorPool:
    if not core:
        return compiled(ROOT / "proto", "task.proto")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "task.proto").write_text(CORE)
        return compiled(Path(folder), "task.proto")


@functools.cache
def message(name: str, *, core: bool = False) -> Any:
    """Return the class of a message. With ``core``, it knows fields 1 and 2 only."""
    return message_factory.GetMessageClass(_pool(core=core).FindMessageTypeByName(name))


def request(sequence: int, payload: str) -> bytes:
    """Return an encoded ``Request`` from a writer that knows fields 1 and 2."""
    encoded: bytes = message("Request", core=True)(sequence=sequence, payload=payload).SerializeToString()
    return encoded
