"""``worker.Client``: limits, cancelling and closing. The test answers instead of a worker."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from typing import TYPE_CHECKING

import pytest

import worker
from tests.kafka.support.clients import WAIT_LIMIT, answer
from tests.kafka.support.waiting import until
from worker.client import ClientClosedError, TooManyInFlightError
from worker.client import client as client_module

if TYPE_CHECKING:
    from tests.kafka.support.site import Site

pytestmark = pytest.mark.kafka


def test_the_number_of_requests_in_flight_is_limited(quiet: Site) -> None:
    """At the limit ``submit`` waits for an answer, and ``asubmit`` raises."""
    with worker.Client(quiet.environment, max_in_flight=2) as client:
        first, _ = client.submit("1"), client.submit("2")

        async def third() -> None:
            client.asubmit("3")

        with pytest.raises(TooManyInFlightError, match="2 requests are in flight"):
            asyncio.run(third())
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(client.submit, "3")
            assert concurrent.futures.wait([waiting], 0.3).not_done
            answer(quiet, first.id)
            assert waiting.result(WAIT_LIMIT).id


def test_a_callback_can_submit_another_request_at_the_limit(running: Site) -> None:
    """A thread submits faster than the worker answers, and each answer leads to a second request."""
    with worker.Client(running.environment, max_in_flight=20) as client:
        second: list[object] = []

        def follow(_done: object) -> None:
            time.sleep(0.005)  # as if it stored the result
            second.append(client.submit("second"))

        def load() -> None:
            for number in range(300):
                client.submit(f"first {number}").add_done_callback(follow)

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            pool.submit(load).result(WAIT_LIMIT)
            until(lambda: len(second) == 300, lambda: f"{len(second)} of 300")


def test_closing_a_client_fails_its_unanswered_requests(quiet: Site) -> None:
    """The error names the id, by which another client finds the answer. The closed client cannot submit."""
    with worker.Client(quiet.environment) as client:
        future = client.submit("x")

    with pytest.raises(ClientClosedError) as caught:
        future.result(0)
    assert future.id in str(caught.value)
    with pytest.raises(ClientClosedError, match="the client is closed"):
        client.submit("y")
    client.close()
    assert {thread.name for thread in threading.enumerate() if thread.name.startswith("client-")} == set()
    answer(quiet, future.id)
    with worker.Client(quiet.environment) as other:
        assert other.result(future.id, WAIT_LIMIT) == b"done"


def test_a_callback_may_close_the_client(quiet: Site) -> None:
    client, closed = worker.Client(quiet.environment), threading.Event()
    future = client.submit("x")

    def close(_done: concurrent.futures.Future[bytes]) -> None:
        client.close()
        closed.set()

    future.add_done_callback(close)

    answer(quiet, future.id)

    assert closed.wait(WAIT_LIMIT)


def test_a_cancelled_future_does_not_cancel_its_request(quiet: Site) -> None:
    """The future no longer counts as in flight. The request is answered, and its result is found by its id."""
    with worker.Client(quiet.environment, max_in_flight=1) as client:
        future = client.submit("x")

        assert future.cancel()
        assert future.cancel()
        assert concurrent.futures.wait([future], 1).done == {future}
        assert client.submit("y").cancel()
        answer(quiet, future.id)
        assert client.result(future.id, WAIT_LIMIT) == b"done"


def test_a_time_out_of_asyncio_cancels_the_future(quiet: Site) -> None:
    """The future no longer counts as in flight, so another request can be submitted."""

    async def give_up(client: worker.Client) -> str:
        future = client.asubmit("x")
        task_id = await future.delivered()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(future, 0.05)
        second = client.asubmit("y")
        await second.delivered()
        second.cancel()
        return task_id

    with worker.Client(quiet.environment, max_in_flight=1) as client:
        task_id = asyncio.run(give_up(client))
        answer(quiet, task_id)
        assert client.result(task_id, WAIT_LIMIT) == b"done"


def test_the_client_searches_again_for_an_id_it_no_longer_watches(quiet: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of watched ids is limited. Futures that the caller holds are not affected."""
    monkeypatch.setattr(client_module, "_WATCHED", 1)
    with worker.Client(quiet.environment) as client:
        futures = [client.submit(str(number)) for number in range(3)]
        kept = client.resume([future.id for future in futures])
        for future in futures * 2:
            with pytest.raises(TimeoutError):
                client.result(future.id, 0.05)
        for future in futures:
            answer(quiet, future.id)

        assert [client.result(future.id, WAIT_LIMIT) for future in futures] == [b"done"] * 3
        assert [future.result(WAIT_LIMIT) for future in [*futures, *kept]] == [b"done"] * 6


def test_a_request_with_an_invalid_header_does_not_count_as_in_flight(quiet: Site) -> None:
    """``submit`` raises a TypeError and sends nothing."""
    with worker.Client(quiet.environment, max_in_flight=1) as client:
        for _ in range(2):
            with pytest.raises(TypeError):
                client.submit("x", headers=[("a", 1)])  # type: ignore[list-item]
        assert client.submit("x").id
