"""The real service thread and runner beside the poll loop: what the stand-in of the other tests stands for."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.process_fake.world import ACKS, CONFIG, GROUP, World
from worker.codec import DEAD_LETTERED, OK, AnswerEncoder
from worker.core.model import Partition
from worker.errors import ExitCode, Reject, Retry
from worker.handlers.runner import Runner
from worker.metrics import Metrics
from worker.process.cell import SIZE, Cell, Command
from worker.process.mailbox import Mailbox
from worker.process.poller import Poller
from worker.process.service import Service
from worker.process.tasklog import TaskLog

if TYPE_CHECKING:
    from tests.fakes.clock import Clock
    from worker.handlers.context import Context
    from worker.handlers.loader import Handler

LONG = 30.0  # seconds; only a failure ever waits so long


class BothTimes(Mailbox):
    """While the poll thread waits for the other one, the fake clock goes on too."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float) -> None:
        super().wait(timeout)
        self._clock.wait(timeout)


class Desk:
    """A worker process in this thread and its service thread; Kafka is the fake one and in no time."""

    def __init__(self, world: World, handler: Handler) -> None:
        runner, mailbox = Runner(handler, {}, 3), BothTimes(world.clock)
        self.cell = Cell(bytearray(SIZE))
        self.cell.order(Command.START_TASKS)
        self.consumer = world.broker.consumer(GROUP, max_poll_interval=86_400.0)
        self.poller = Poller(
            CONFIG,
            consumer=self.consumer,
            writer=world.broker.producer(),
            encoder=AnswerEncoder("host-0"),
            runner=runner,
            service=Service(runner, mailbox),
            mailbox=mailbox,
            cell=self.cell,
            metrics=Metrics(),
            tasklog=TaskLog(),
            hold=lambda: 60.0,
            clock=world.clock,
        )


def run(world: World, handler: Handler, until: int) -> ExitCode:
    """Work until so many requests are answered, and leave."""
    desk = Desk(world, handler)

    def look() -> None:
        if len(world.broker.records(ACKS)) >= until:
            desk.cell.order(Command.DRAIN)
        world.clock.after(0.01, look)

    look()
    return desk.poller.run()


def test_what_handlers_do_becomes_answers(world: World) -> None:
    """Results, failures, rejections, ``sys.exit`` and bytes that are no request: each has its answer."""

    def handler(request: Any, context: Context) -> Any:
        match request.payload:
            case "text":
                return "ключ"
            case "flaky" if context.attempt < 3:
                raise Retry(after=0.5)
            case "broken":
                raise ValueError("no such thing")
            case "rejected":
                raise Reject("never")
            case "exit":
                sys.exit(3)
        return f"{request.payload} {context.attempt}"

    for payload in ("text", "flaky", "broken", "rejected", "exit", "last"):
        world.request(payload)
    world.raw(b"\xff")
    assert run(world, handler, until=7) is ExitCode.DRAINED
    assert [(answer.outcome, answer.result or answer.error.type) for answer in world.answers()] == [
        (OK, "ключ".encode()),
        (OK, b"flaky 3"),
        (DEAD_LETTERED, "ValueError"),
        (DEAD_LETTERED, "Reject"),
        (DEAD_LETTERED, "SystemExit"),
        (OK, b"last 1"),
        (DEAD_LETTERED, "MalformedRequest"),
    ]
    assert 'raise ValueError("no such thing")' in world.answers()[2].error.traceback
    assert world.committed() == 7


def test_thousands_of_short_tasks_keep_their_order(world: World) -> None:
    """Chunk after chunk, with failures in between, on two threads."""
    started: list[tuple[int, int, int]] = []

    def handler(_request: object, context: Context) -> None:
        _, number, offset = context.origin
        started.append((number, offset, context.attempt))
        if offset % 97 == 5 and context.attempt == 1:
            raise Retry(after=0.0)

    for number in (0, 1):
        for _ in range(2_000):
            world.request("x", number)
    assert run(world, handler, until=4_000) is ExitCode.DRAINED
    for number in (0, 1):
        expected = [(offset, n) for offset in range(2_000) for n in ((1, 2) if offset % 97 == 5 else (1,))]
        assert [(offset, attempt) for partition, offset, attempt in started if partition == number] == expected
        assert world.committed(number) == 2_000
    assert len(set(world.answered())) == len(world.answered()) == 4_000


@pytest.mark.parametrize("reason", ["drain", "revoked"])
def test_a_handler_that_waits_for_its_cancellation_gets_it(world: World, reason: str) -> None:
    """At once, and with the reason; its result is dropped."""
    seen: list[str | None] = []

    def handler(_request: object, context: Context) -> str:
        if reason == "drain":
            desk.cell.order(Command.CANCEL)
        else:
            world.broker.group(GROUP).leave(desk.consumer)
            desk.cell.order(Command.DRAIN)
        assert context.cancelled.wait(LONG)
        seen.append(context.cancelled.reason)
        return "too late"

    world.request("x")
    desk = Desk(world, handler)
    exit_code = desk.poller.run()
    assert seen == [reason]
    assert (world.answers(), world.committed()) == ([], None)
    assert world.noted().working is None
    assert world.noted().attempts == ({} if reason == "drain" else {0: 1}), "lost: it may have been the task's fault"
    assert exit_code is (ExitCode.DRAIN_TIMED_OUT if reason == "drain" else ExitCode.DRAINED)
    assert Partition("requests", 0) not in desk.poller.assignment.lanes


def test_a_deadline_ends_a_task_that_is_held_too(world: World) -> None:
    """Nothing is polled while a partition is held for it; the hold may be a day, and the task may wait for this."""
    seen: list[str | None] = []

    def handler(_request: object, context: Context) -> str:
        if context.origin.offset == 0:
            world.move(0, rival)
            assert context.cancelled.wait(LONG)
            seen.append(context.cancelled.reason)
        return "done"

    rival = world.rival()
    world.request("x", headers=(("x-deadline", f"{time.time() + 0.5}".encode()),))
    desk = Desk(world, handler)
    world.broker.group(GROUP).move(Partition("requests", 0), desk.consumer)

    def look() -> None:
        if seen and 0 in rival.owned:
            desk.cell.order(Command.DRAIN)
        world.clock.after(0.01, look)

    look()
    assert desk.poller.run() is ExitCode.DRAINED
    assert seen == ["deadline"]
    assert (world.answered(), world.committed()) == ([(0, 0)], 1)
