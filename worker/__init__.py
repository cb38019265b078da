"""A Kafka worker for CPU-bound tasks of unknown length. Handlers and clients import only this package."""

from typing import TYPE_CHECKING, Any

from worker.errors import Cancelled, Reject, Retry

if TYPE_CHECKING:
    from worker.client import Client, TaskFailed

__all__ = ["Cancelled", "Client", "Reject", "Retry", "TaskFailed"]


def __getattr__(name: str) -> Any:
    """Import the client when it is used: handlers import this package too, and need no Kafka client."""
    if name not in {"Client", "TaskFailed"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from worker import client  # noqa: PLC0415 - see above

    return getattr(client, name)
