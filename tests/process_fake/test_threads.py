"""The real executor thread and runner beside the main loop. The other tests have a stand-in for them."""

from __future__ import annotations

import dataclasses
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.process_fake.world import ACKS, CONFIG, GROUP, World
from tests.unit.support import Watch, a_task
from worker.codec import DEAD_LETTERED, OK
from worker.core.model import Partition
from worker.errors import ExitCode, Reject, Retry
from worker.executors.mailbox import Mailbox
from worker.executors.thread import ThreadExecutor
from worker.handlers import attempt as attempt_module
from worker.handlers import context as context_module
from worker.handlers.attempt import AttemptRunner
from worker.process.handler_side import executor_of
from worker.process.status_block import SIZE, Activity, Command, StatusBlock
from worker.process.wiring import Assembly
from worker.testing.group_calls import FakeGroupClient
from worker.testing.transactor import FakeTransactor

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.handlers.context import Context
    from worker.handlers.loader import Handler
    from worker.testing.clock import Clock

LONG = 30.0  # seconds; only a test that fails waits that long


class BothTimes(Mailbox):
    """A mailbox that also advances the fake clock while the poll thread waits for the executor's thread."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float) -> None:
        super().wait(timeout)
        self._clock.wait(timeout)


class Stage:
    """A worker process in this thread and an executor thread, with the fake Kafka."""

    def __init__(self, world: World, handler: Handler, timeout: float = 0.0) -> None:
        runner, mailbox = AttemptRunner(handler, {}, 3, timeout), BothTimes(world.clock)
        self.status = StatusBlock(bytearray(SIZE))
        self.status.order(Command.START_TASKS)
        self.consumer = world.broker.consumer(GROUP, max_poll_interval=86_400.0)
        self.loop = Assembly(
            config=dataclasses.replace(CONFIG, revoke_hold={"consumer": 60.0}),
            status=self.status,
            consumer=self.consumer,
            make_producer=world.broker.producer,
            make_transactor=lambda: FakeTransactor(world.broker, GROUP),
            make_group_client=lambda: FakeGroupClient(world.broker),
            executor=ThreadExecutor(runner, mailbox),
            mailbox=mailbox,
            clock=world.clock,
        ).main_loop()


def run(world: World, handler: Handler, until: int) -> ExitCode:
    """Run a process until that many requests are answered, and drain it. Return its exit code."""
    stage = Stage(world, handler)
    when(world, lambda: len(world.broker.records(ACKS)) >= until, lambda: stage.status.order(Command.DRAIN))
    return stage.loop.run()


def when(world: World, ready: Callable[[], object], action: Callable[[], None]) -> None:
    """Do the action on the poll thread when it is ready: the fake broker is not made for a second thread."""
    if ready():
        action()
    else:
        world.clock.after(0.01, lambda: when(world, ready, action))


def test_a_request_is_answered_however_its_handler_ends(world: World) -> None:
    """These are results, failures, rejections and ``sys.exit``. Bytes that are no request have an answer, too."""

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
    """They run in chunks on two threads, with failures in between."""
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


def cancelled_handler(world: World, reason: str, end: Callable[[Context], str]) -> tuple[Stage, ExitCode]:
    """Run a handler that waits for its cancellation and then calls ``end``. Return the stage and the exit code."""
    begun = threading.Event()
    seen: list[str | None] = []

    def handler(_request: object, context: Context) -> str:
        begun.set()
        assert context.cancelled.wait(LONG)
        seen.append(context.cancelled.reason)
        return end(context)

    def cancel() -> None:
        if reason == "drain":
            stage.status.order(Command.CANCEL)
        else:
            world.broker.group(GROUP).leave(stage.consumer)
            stage.status.order(Command.DRAIN)

    world.request("x")
    stage = Stage(world, handler)
    when(world, begun.is_set, cancel)
    exit_code = stage.loop.run()
    assert seen == [reason]
    return stage, exit_code


def give_up(context: Context) -> str:
    context.cancelled.raise_if_set()
    return "not reached"


@pytest.mark.parametrize("reason", ["drain", "revoked"])
def test_a_handler_that_waits_for_its_cancellation_gets_it(world: World, reason: str) -> None:
    """It comes at once, with the reason. If the handler gives up, there is no answer. A drain uses up no attempt."""
    stage, exit_code = cancelled_handler(world, reason, give_up)
    assert (world.answers(), world.committed()) == ([], None)
    assert world.noted().started_below is None
    assert world.noted().attempts == ({} if reason == "drain" else {0: 1}), "lost: the task may have been the cause"
    assert exit_code is (ExitCode.DRAIN_TIMED_OUT if reason == "drain" else ExitCode.DRAINED)
    assert len(stage.loop.assignment) == 0


@pytest.mark.parametrize("reason", ["drain", "revoked"])
def test_a_result_that_a_cancelled_handler_returns_is_answered(world: World, reason: str) -> None:
    """This holds as long as the lease of the task is valid (B14)."""
    cancelled_handler(world, reason, lambda _context: "just in time")
    assert [answer.result for answer in world.answers()] == ([b"just in time"] if reason == "drain" else [])
    assert world.committed() == (1 if reason == "drain" else None)


def test_a_deadline_ends_a_task_during_a_hold_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hold may last a day, and the task may run until it is cancelled."""
    watch, begun = Watch(), threading.Event()
    for module in (attempt_module, context_module):
        monkeypatch.setattr(module, "time", watch)
    seen: list[str | None] = []

    def handler(_request: object, context: Context) -> str:
        if context.origin.offset == 0:
            begun.set()
            assert context.cancelled.wait(LONG)
            seen.append(context.cancelled.reason)
        return "done"

    rival = world.rival()
    world.request("x", headers=(("x-deadline", f"{watch.time() + 60.0}".encode()),))
    stage = Stage(world, handler)
    world.broker.group(GROUP).move(Partition("requests", 0), stage.consumer)
    when(world, begun.is_set, lambda: world.move(0, rival))
    when(world, lambda: stage.loop._rebalance.held, lambda: watch.sleep(60.0))
    when(world, lambda: seen and 0 in rival.owned, lambda: stage.status.order(Command.DRAIN))
    assert stage.loop.run() is ExitCode.DRAINED
    assert seen == ["deadline"]
    assert (world.answered(), world.committed()) == ([(0, 0)], 1)


def test_a_task_that_ignores_its_deadline_is_logged(
    world: World, monkeypatch: pytest.MonkeyPatch, lines: list[Any]
) -> None:
    """The log has one line, when the deadline passes. The handler may end hours later."""
    watch, begun, release = Watch(), threading.Event(), threading.Event()
    for module in (attempt_module, context_module):
        monkeypatch.setattr(module, "time", watch)

    def handler(_request: object, _context: Context) -> str:
        begun.set()
        assert release.wait(LONG)
        return "late"

    def reports() -> list[tuple[Any, ...]]:
        fields = ("log_level", "reason", "partition", "offset")
        return [tuple(line[name] for name in fields) for line in lines if line["event"] == "task.cancelling"]

    world.request("x", headers=(("x-deadline", f"{watch.time() + 60.0}".encode()),))
    stage = Stage(world, handler)
    when(world, begun.is_set, lambda: watch.sleep(60.0))
    when(world, reports, release.set)
    when(world, lambda: len(world.broker.records(ACKS)) == 1, lambda: stage.status.order(Command.DRAIN))
    assert stage.loop.run() is ExitCode.DRAINED
    assert reports() == [("warning", "deadline", "requests[0]", 0)]


def test_every_attempt_that_is_cancelled_at_its_time_limit_is_counted(world: World, lines: list[Any]) -> None:
    """The next attempt may begin before the poll thread has seen that the one before it has ended."""

    def handler(_request: object, context: Context) -> None:
        assert context.cancelled.wait(LONG)
        raise Retry(after=0.0)

    world.request("x")
    stage = Stage(world, handler, timeout=0.05)
    when(world, lambda: len(world.broker.records(ACKS)) == 1, lambda: stage.status.order(Command.DRAIN))
    assert stage.loop.run() is ExitCode.DRAINED
    assert [line["reason"] for line in lines if line["event"] == "task.cancelling"] == ["timeout"] * 3
    snapshot = stage.status.read()
    assert snapshot is not None
    assert snapshot["counters"]["cancellations_total"] == {"timeout": 3}


def test_each_start_is_written_into_the_status_block() -> None:
    """The supervisor reads there which task killed a process, and which task runs while it holds the interpreter."""
    status, mailbox = StatusBlock(bytearray(SIZE)), Mailbox()
    config = dataclasses.replace(CONFIG, handler="examples.hello:greet", request_topics=("others", "requests"))
    executor = executor_of(config, mailbox, None, status)
    executor.start()
    executor.submit([a_task(offset=42, attempt=2)])
    while not mailbox.take():
        mailbox.wait(LONG)
    executor.stop()
    start = status.read_start()
    assert (start.activity, start.topic, start.offset, start.attempt) == (Activity.IDLE, 1, 42, 3)
