"""``worker.Client``: submit requests and get their results, from threads or asyncio."""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import os
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Self

from worker.client.answers import Answers
from worker.client.futures import AsyncTaskFuture
from worker.client.ids import TaskId
from worker.client.requests import headers_of, key_bytes, payload_text
from worker.client.submitter import Submission, Submitter
from worker.formats import FORMATS
from worker.kafka.cluster import Cluster
from worker.settings import ClientSettings

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Mapping

    from worker.client.futures import TaskFuture
    from worker.client.requests import GivenHeaders

_QUESTION = 10.0  # seconds that the broker has to reply
_WATCHED = 10_000  # ids whose answers are awaited after `result` has timed out
_SEQUENCES = 2**31 - 1


class Client:
    """Submits requests to the first request topic and reads the ack topic for their answers.

    Settings come from ``environ`` (by default the environment of the process), as for the commands: ``KAFKA_*``, with
    TLS and SASL in ``KAFKA_CONFIG_*``. Raises SettingsError, and BrokerError if Kafka or a topic cannot be reached.

    Any thread may call any method. After a fork, create a new client in the child. At most ``max_in_flight``
    submitted requests are unanswered at a time.
    """

    def __init__(self, environ: Mapping[str, str] | None = None, *, max_in_flight: int = 100_000) -> None:
        if max_in_flight < 1:
            raise ValueError(f"max_in_flight must be at least 1, not {max_in_flight}")
        settings = ClientSettings.load(os.environ if environ is None else environ)
        properties = settings.client_properties() | {"client.id": "worker-client"}
        self._encode = FORMATS[settings.message_format].encode_request
        timeout = min(_QUESTION, settings.connect_timeout)
        topic, self._pid = settings.request_topics[0], os.getpid()
        Cluster(properties, timeout).partitions(topic)  # reports a missing topic now instead of after a minute
        self._sequences, self._lock = itertools.count(), threading.Lock()
        self._watched: OrderedDict[str, TaskFuture] = OrderedDict()
        # A consumer must name a group, although this one joins none.
        reading = properties | {"group.id": settings.group}
        self._answers = Answers(reading, settings.ack_topic, timeout)
        self._submitter = Submitter(properties, topic, max_in_flight, self._answers)

    def submit(
        self,
        payload: str,
        key: str | bytes | None = None,
        deadline: dt.datetime | float | None = None,
        timeout: float | None = None,
        headers: GivenHeaders = (),
    ) -> TaskFuture:
        """Submit a request and return at once. Wait only while ``max_in_flight`` requests are unanswered.

        ``deadline`` is a time with a zone, or seconds since the epoch: a request that cannot start by then is answered
        EXPIRED. ``timeout`` limits one attempt, in seconds. ``headers`` are pairs, or a mapping.

        The future's ``result(timeout)`` returns the answer's ``result``. It raises TaskFailed if the request failed,
        DeliveryError if Kafka has not confirmed it, and ClientClosedError if the client was closed before the answer.
        """
        return self._submitter.submit(self._submission(payload, key, deadline, timeout, headers))

    def asubmit(
        self,
        payload: str,
        key: str | bytes | None = None,
        deadline: dt.datetime | float | None = None,
        timeout: float | None = None,
        headers: GivenHeaders = (),
    ) -> AsyncTaskFuture:
        """Submit a request from asyncio: ``await client.asubmit(…)`` is the result, and so is that of a task around it.

        The id is known after ``await future.delivered()``. This never blocks the event loop: if too many requests are
        in flight, it raises TooManyInFlightError.
        """
        loop = asyncio.get_running_loop()
        submission = self._submission(payload, key, deadline, timeout, headers)
        return AsyncTaskFuture(self._submitter.try_submit(submission), loop)

    def resume(self, ids: Iterable[str]) -> list[TaskFuture]:
        """Return futures for earlier submits, by any process, in the order of their ids.

        Earlier answers are searched for in the ack topic, for all ids at once. Raise InvalidIdError. If the request of
        an id does not exist, its future never completes.
        """
        self._check_process()
        return self._answers.find([TaskId.parse(task_id) for task_id in ids])

    def result(self, id: str, timeout: float | None = None) -> bytes:  # noqa: A002 - the contract's name
        """Return the result of an earlier submit, by any process. Raise as the future's ``result`` does.

        ``timeout`` is in seconds; after it TimeoutError is raised. To wait for many, use ``resume``.
        """
        with self._lock:
            future = self._watched.pop(id, None)
        if future is None:
            (future,) = self.resume([id])
        try:
            return future.result(timeout)
        except concurrent.futures.TimeoutError:
            if future.done():  # at the last moment
                return future.result()
            self._watch(id, future)
            raise TimeoutError(f"no answer to {id} within {timeout:g} s") from None

    def close(self, timeout: float = 10.0) -> None:
        """Wait at most ``timeout`` seconds for Kafka to confirm the submitted requests, and end the client.

        This does not wait for answers: futures without one raise ClientClosedError, which contains the id.
        """
        if self._submitter.refuse("the client is closed"):
            self._submitter.close(timeout)
            self._answers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    # --

    def _submission(
        self,
        payload: str,
        key: str | bytes | None,
        deadline: dt.datetime | float | None,
        timeout: float | None,
        headers: GivenHeaders,
    ) -> Submission:
        self._check_process()
        sequence = next(self._sequences) % _SEQUENCES + 1
        value = self._encode(sequence, payload_text(payload))
        return Submission(key_bytes(key), value, headers_of(headers, deadline, timeout))

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise RuntimeError("this client was made before a fork: make a worker.Client in each process")

    def _watch(self, task_id: str, future: TaskFuture) -> None:
        """Keep the future for the next call with this id, so that nothing has to be read again."""
        with self._lock:
            dropped = self._watched.pop(task_id, None)
            self._watched[task_id] = future
            if len(self._watched) > _WATCHED:
                _, dropped = self._watched.popitem(last=False)
        if dropped is not None:
            dropped.cancel()  # nobody waits for it any more
