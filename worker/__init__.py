"""A Kafka worker for CPU-bound tasks of unknown length. Handlers need only what is exported here."""

from worker.errors import Reject, Retry

__all__ = ["Reject", "Retry"]
