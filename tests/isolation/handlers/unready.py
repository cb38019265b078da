"""A handler whose set-up hook fails, or kills its process."""

from __future__ import annotations

import ctypes
import os
from typing import NoReturn


def worker_process_init() -> NoReturn:
    """Crash, or fail because the model is missing."""
    if os.environ.get("UNREADY") == "crash":
        ctypes.string_at(0)
    raise FileNotFoundError("model.bin")


def handle(_request: object, _context: object) -> None:
    """Never called."""
