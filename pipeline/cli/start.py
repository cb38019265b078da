"""The start of a command: Spark's JVM starts while this process imports what the jobs need. Imports Spark."""

from __future__ import annotations

import contextlib
import importlib
import threading
from typing import Any

from pipeline.lake.sources import is_small
from pipeline.session import build_session

_COMMANDS = "pipeline.cli.commands"


def run(command: str, settings: Any, limit: int | None) -> int:
    """Start a session and run a command in it. Return its exit code."""
    importing = threading.Thread(target=_import, name="imports", daemon=True)
    importing.start()
    source = getattr(settings, "source", None)
    spark = build_session(
        f"{command} {settings.job}",
        master=settings.master,
        table_format=settings.table_format,
        input_format="parquet" if source is None else source.format,
        small=is_small(source),
    )
    importing.join()
    code: int = importlib.import_module(_COMMANDS).run(command, spark, settings, limit)
    return code


def _import() -> None:
    # An error occurs again where the module is needed. It may also be due to the working directory, which is another
    # one while the JVM starts.
    with contextlib.suppress(Exception):
        importlib.import_module(_COMMANDS)
