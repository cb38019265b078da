"""A handler that prints text and may then abort its process."""

from __future__ import annotations

import os
import subprocess
from typing import Any


def handle(request: Any, _context: Any) -> str:
    """Do ``say TEXT``, ``abort TEXT``, ``lines COUNT`` or ``abort_after COUNT``."""
    name, _, argument = request.payload.partition(" ")
    if name.endswith(("lines", "after")):
        for number in range(int(argument)):
            print(f"line {number:06}")  # noqa: T201 - the test reads it
    else:
        print(argument)  # noqa: T201 - the test reads it
        os.write(2, f"{argument}, said the library\n".encode())  # as C code does
        subprocess.run(["sh", "-c", 'echo "$0, said the program" >&2', argument], check=True)
    if name.startswith("abort"):
        os.abort()
    return "done"
