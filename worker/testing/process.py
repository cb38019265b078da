"""A worker process of the in-memory cluster: the real main loop and executor, with clients of the fake broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from worker.executors.mailbox import Mailbox
from worker.executors.thread import BatchExecutor, ThreadExecutor
from worker.formats import FORMATS
from worker.handlers.attempt import AttemptRunner
from worker.handlers.batch import BatchRunner
from worker.process.config import ProcessConfig
from worker.process.status_block import SIZE, Command, StatusBlock
from worker.process.wiring import Assembly
from worker.testing.group_calls import FakeGroupCalls, FakeGroupClient
from worker.testing.states import FakeStateTopic
from worker.testing.storage import MAX_BYTES
from worker.testing.transaction_thread import FakeTransactionThread
from worker.testing.transactor import FakeTransactor

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.errors import ExitCode
    from worker.executors.port import Executor
    from worker.handlers.loader import Handler
    from worker.process.group_calls import GroupCalls
    from worker.process.transaction_thread import TransactionThread
    from worker.testing.broker import FakeBroker
    from worker.testing.clock import Clock

REQUEST_TOPIC, ACK_TOPIC, DEAD_LETTER_TOPIC, STATE_TOPIC = "requests", "answers", "requests.dlq", "states"
GROUP = "workers"
POLL_INTERVAL = 86_400.0  # a day, so that a handler that takes real time does not lose the membership
REVOKE_HOLD = 86_400.0


def config_of(name: str, **options: Any) -> ProcessConfig:
    """Return the configuration of a process, as the supervisor renders it from the settings."""
    return ProcessConfig(
        name=name,
        slot=0,
        group=GROUP,
        request_topics=(REQUEST_TOPIC,),
        ack_topic=ACK_TOPIC,
        dead_letter_topic=DEAD_LETTER_TOPIC,
        consumer_properties={},
        revoke_hold={"consumer": REVOKE_HOLD},
        producer_properties={},
        checker_properties={},
        handler="",
        max_answer_bytes=MAX_BYTES,
        max_dead_letter_bytes=MAX_BYTES,
        log_level="INFO",
        log_format="console",
        state_topic=STATE_TOPIC,
        **options,
    )


class ClusterMailbox(Mailbox):
    """Waits for a running task in real time, and then on the cluster's clock; without a task, only on that clock."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.is_working: Callable[[], bool] = lambda: False  # whether the executor has tasks
        self._clock = clock

    def wait(self, timeout: float) -> None:
        """See ``Mailbox``."""
        super().wait(timeout if self.is_working() else 0.0)
        self._clock.wait(timeout)


class WorkerProcess:
    """One worker process. ``exit_code`` is None while it runs, ``error`` is the exception that ended it."""

    def __init__(self, broker: FakeBroker, config: ProcessConfig, handler: Callable[..., object]) -> None:
        self.exit_code: ExitCode | None = None
        self.error: BaseException | None = None
        self.group = config.group
        mailbox = ClusterMailbox(broker.clock)
        mailbox.is_working = self._is_working
        self._executor = _executor(config, mailbox, cast("Handler", handler))
        self._status = StatusBlock(bytearray(SIZE))
        self._status.order(Command.START_TASKS)
        self._loop = Assembly(
            config=config,
            status=self._status,
            consumer=broker.consumer(config.group, max_poll_interval=POLL_INTERVAL),
            make_producer=broker.producer,
            make_transactor=lambda: FakeTransactor(broker, config.group),
            make_group_client=lambda: FakeGroupClient(broker),
            executor=self._executor,
            mailbox=mailbox,
            states=FakeStateTopic(broker, STATE_TOPIC, config.name),
            make_thread=lambda *_: cast("TransactionThread", FakeTransactionThread(broker, config.group)),
            make_calls=lambda _, notify: cast("GroupCalls", FakeGroupCalls(broker, notify)),
            clock=broker.clock,
        ).main_loop()
        broker.clock.spawn(self._run)

    @property
    def ended(self) -> bool:
        """Return whether the process has left the group or failed."""
        return self.exit_code is not None or self.error is not None

    def drain(self) -> None:
        """Act like the first SIGTERM: running tasks finish, no more start, and the process leaves the group."""
        self._status.order(Command.DRAIN)

    def cancel(self) -> None:
        """Act like the second SIGTERM: running tasks are asked to stop (reason ``drain``), and the process leaves."""
        self._status.order(Command.CANCEL)

    def _is_working(self) -> bool:
        return self._executor.running is not None or any(owned.in_flight for owned in self._loop.assignment)

    def _run(self) -> None:
        try:
            self.exit_code = self._loop.run()
        except Exception as error:  # noqa: BLE001 - raised in the test that uses the cluster
            self.error = error


def _executor(config: ProcessConfig, mailbox: Mailbox, handler: Handler) -> Executor:
    kwargs, most = config.handler_kwargs, config.max_attempts
    decode = FORMATS[config.message_format].decode_request
    if config.batch_size > 1:
        return BatchExecutor(lambda post: BatchRunner(handler, kwargs, most, post, decode=decode), mailbox)
    return ThreadExecutor(AttemptRunner(handler, kwargs, most, decode=decode), mailbox)
