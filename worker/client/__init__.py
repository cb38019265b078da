"""Submits requests from Python and gets their results: see docs/client.md."""

from worker.client.client import Client
from worker.client.errors import ClientClosedError, DeliveryError, TaskFailed, TooManyInFlightError
from worker.client.futures import AsyncTaskFuture, TaskFuture
from worker.client.ids import InvalidIdError

__all__ = [
    "AsyncTaskFuture",
    "Client",
    "ClientClosedError",
    "DeliveryError",
    "InvalidIdError",
    "TaskFailed",
    "TaskFuture",
    "TooManyInFlightError",
]
