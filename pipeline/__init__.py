"""From a table of work to audited answers, on Spark. ``pipeline.Job`` is the Python API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.api import Job

__all__ = ["Job"]


def __getattr__(name: str) -> Any:
    # Imported on first use: neither --help on the command line nor executors need Spark.
    if name == "Job":
        from pipeline.api import Job  # noqa: PLC0415

        return Job
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
