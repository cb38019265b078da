"""A fake Kafka, and worker processes with the real main loop. All of them use the fake clock."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any

from tests.process_fake.stand_ins import StandInExecutor, StandInMailbox, Work
from worker.codec import decode_request, decode_response, encode_request
from worker.core.commit_metadata import EMPTY, CommitMetadata, decode
from worker.core.detached import client_id_of
from worker.core.model import Partition, Record, Task
from worker.core.task_state import CancelRequest, Origin
from worker.process.config import ProcessConfig
from worker.process.status_block import SIZE, Command, StatusBlock
from worker.process.wiring import Assembly
from worker.state.records import cancel_key, encode_cancel, partition_of
from worker.state.table import StateTable
from worker.testing.broker import FakeBroker
from worker.testing.clock import Clock
from worker.testing.group_calls import FakeGroupCalls, FakeGroupClient
from worker.testing.states import FakeStateTopic
from worker.testing.transaction_thread import FakeTransactionThread
from worker.testing.transactor import FakeTransactor

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.codec import Response
    from worker.core.model import Headers
    from worker.core.task_state import TaskState
    from worker.errors import ExitCode
    from worker.testing.consumer import FakeConsumer

REQUESTS, ACKS, DEAD, STATES = "requests", "acks", "requests.dlq", "states"
GROUP = "group"
WAIT_LIMIT = 3_600.0  # seconds of the fake clock; only a test that fails waits that long

_tokens = itertools.count(0xA0000000)

CONFIG = ProcessConfig(
    name="host-0",
    slot=0,
    group=GROUP,
    request_topics=(REQUESTS,),
    ack_topic=ACKS,
    dead_letter_topic=DEAD,
    consumer_properties={},
    revoke_hold={},
    producer_properties={},
    checker_properties={},
    handler="",
    handler_kwargs={},
    guarantee="at-least-once",
    ordering="partition",
    max_attempts=3,
    retry_first=10.0,
    retry_greatest=100.0,
    max_answer_bytes=1_048_588,
    max_dead_letter_bytes=1_048_588,
    log_level="INFO",
    log_format="json",
)


class Process:
    """A worker process: the real main loop in a fibre. Stand-ins replace the rest."""

    def __init__(
        self,
        world: World,
        *,
        hold: float,
        started: bool,
        max_poll_interval: float,
        store: Any,
        spans: Any,
        **options: Any,
    ) -> None:
        self.world, clock = world, world.clock
        self.exit_code: ExitCode | None = None
        self.error: BaseException | None = None
        self.killed = False
        self.status = StatusBlock(bytearray(SIZE))
        mailbox = StandInMailbox(clock)
        config = dataclasses.replace(CONFIG, revoke_hold=dict.fromkeys(("consumer", "classic"), hold), **options)
        self.service = StandInExecutor(clock, mailbox, world.work_of, config.max_attempts)
        self.consumer = world.broker.consumer(GROUP, max_poll_interval=max_poll_interval)
        config = dataclasses.replace(config, name=self.consumer.name)
        self.token = f"{next(_tokens):08x}"
        if config.state_topic:
            self.consumer.client_id = client_id_of(config.name, self.token)
        self.producer = world.broker.producer()
        self.states = FakeStateTopic(world.broker, STATES, config.name) if config.state_topic else None
        self.transaction_thread = FakeTransactionThread(world.broker, GROUP)
        self.assembly = Assembly(
            config=config,
            status=self.status,
            consumer=self.consumer,
            make_producer=lambda: self.producer,
            make_transactor=lambda: FakeTransactor(world.broker, GROUP),
            make_group_client=lambda: FakeGroupClient(world.broker),
            executor=self.service,
            mailbox=mailbox,
            store=store,
            states=self.states,
            make_thread=lambda *_: self.transaction_thread,  # type: ignore[arg-type]
            make_calls=lambda _, notify: FakeGroupCalls(world.broker, notify),  # type: ignore[arg-type,return-value]
            clock=clock,
            token=self.token,
            spans=spans,
        )
        self.loop = self.assembly.main_loop()
        self.metrics = self.loop._metrics
        if started:
            self.status.order(Command.START_TASKS)
        self._fibre = clock.spawn(self._live)

    def _live(self) -> None:
        try:
            self.exit_code = self.loop.run()
        except Exception as error:  # noqa: BLE001 - as in a real process, it ends only this one
            self.error = error

    def kill(self) -> None:
        """End the process at once. It does not even leave the group."""
        self.killed = self.transaction_thread.killed = True
        self.world.clock.kill(self._fibre)
        self.service.kill()
        if self.states is not None:
            self.states.closed = True

    # -- what tests look at

    def order(self, command: Command) -> None:
        self.status.order(command)

    @property
    def starts(self) -> list[tuple[int, int, int]]:
        """Partition, offset and attempt of every start."""
        return [(task.record.partition.number, task.record.offset, n) for _, task, n in self.service.started]

    def counter(self, name: str, label: str | None = None) -> float:
        value: Any = self.metrics.snapshot()["counters"].get(name, 0 if label is None else {})
        return float(value if label is None else value.get(label, 0))

    @property
    def owned(self) -> list[int]:
        return sorted(partition.number for partition in self.loop.assignment.partitions)


class World:
    """Topics, requests, processes and answers."""

    def __init__(self, partitions: int = 2) -> None:
        self.clock = Clock()
        self.began = self.clock()
        self.broker = FakeBroker(self.clock)
        for topic in (REQUESTS, ACKS, DEAD, STATES):
            self.broker.create(topic, partitions)
        self.script: dict[str, Work | list[Work]] = {}  # by payload: for all attempts, or one for each attempt
        self._sequence = 0
        self._answers: list[Response] = []
        self._read: dict[Any, Response] = {}  # value -> answer

    # -- arrange

    def process(
        self,
        *,
        hold: float = 1_000.0,
        started: bool = True,
        max_poll_interval: float = 86_400.0,
        store: Any = None,
        spans: Any = None,
        **options: Any,
    ) -> Process:
        """Start a worker process."""
        given = {"store": store, "spans": spans, **options}
        return Process(self, hold=hold, started=started, max_poll_interval=max_poll_interval, **given)

    def request(
        self,
        payload: str = "",
        number: int = 0,
        *,
        work: Work | list[Work] | None = None,
        key: bytes | None = None,
        headers: Headers = (),
    ) -> int:
        """Put a request into a partition. Return its offset. ``work`` is what requests with this payload do."""
        self._sequence += 1
        if work is not None:
            self.script[payload] = work
        return self.raw(encode_request(self._sequence, payload), number, key=key, headers=headers)

    def quick(self, number: int = 0, count: int = 30) -> None:
        """Put that many tasks of a millisecond into a partition. After them, many tasks at a time are dispatched."""
        for _ in range(count):
            self.request("quick", number, work=Work(seconds=0.001))

    def raw(self, value: bytes | None, number: int = 0, *, key: bytes | None = None, headers: Headers = ()) -> int:
        """Put any bytes into a partition. Return their offset."""
        return self.broker.append(REQUESTS, value, key, number=number, headers=headers)[1]

    def rival(self) -> Rival:
        """Start another member of the group. Tests look only at its partitions and records."""
        return Rival(self, self.broker.consumer(GROUP))

    def move(self, number: int, to: Process | Rival) -> None:
        """Move a partition to another member, as soon as its owner releases it."""
        self.broker.group(GROUP).move(Partition(REQUESTS, number), to.consumer)

    def work_of(self, task: Task) -> Work:
        work = self.script.get(decode_request(task.record.value).payload, Work())
        return work if isinstance(work, Work) else work[min(task.attempt, len(work)) - 1]

    # -- act

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.wait(seconds)

    def until(self, condition: Callable[[], Any], seconds: float = WAIT_LIMIT) -> None:
        """Let time pass until the condition holds."""
        assert self.clock.wait(seconds, until=lambda: bool(condition())), "it did not come to that in time"

    def crash(self, process: Process) -> None:
        """Kill a process, and let the group notice at once."""
        process.kill()
        self.broker.group(GROUP).leave(process.consumer)

    def leave(self, *processes: Process) -> list[ExitCode | None]:
        """Drain these processes and return their exit codes."""
        for process in processes:
            process.order(Command.DRAIN)
        self.until(lambda: all(process.exit_code is not None or process.error for process in processes))
        return [process.exit_code for process in processes]

    # -- look

    def answers(self) -> list[Response]:
        """Return all answers, in the order of their requests."""
        records = self.broker.records(ACKS)
        if len(records) != len(self._answers):
            # Each is read once, since conditions of ``until`` call this again and again.
            for record in records:
                if record.value not in self._read:
                    self._read[record.value] = decode_response(record.value)
            answers = [self._read[record.value] for record in records]
            self._answers = sorted(answers, key=lambda answer: (answer.origin.partition, answer.origin.offset))
        return self._answers

    def answer_count(self) -> int:
        """Return the number of answers, without reading them. For a condition of ``until`` with many answers."""
        return len(self.broker.records(ACKS))

    def answered(self) -> list[tuple[int, int]]:
        """Return the partition and offset of every request that has an answer, twice if it has two answers."""
        return [(answer.origin.partition, answer.origin.offset) for answer in self.answers()]

    def cancel(self, offset: int, number: int = 0) -> None:
        """Send a cancel request."""
        origin = Origin(REQUESTS, number, offset)
        self.write_state(cancel_key(origin), encode_cancel(CancelRequest(origin)), origin)

    def write_state(self, key: bytes, value: bytes | None, origin: Origin) -> None:
        """Write a record to the state topic, as another process would."""
        place = partition_of(origin, len(self.broker.topics[STATES].logs))
        self.broker.append(STATES, value, key, number=place)

    @property
    def table(self) -> StateTable:
        """The current contents of the state topic."""
        table = StateTable()
        for record in self.broker.records(STATES):
            table.apply(record.key, record.value)
        return table

    def state(self, offset: int, number: int = 0) -> TaskState | None:
        return self.table.states.get(Origin(REQUESTS, number, offset))

    def dead_letters(self) -> list[Record]:
        return self.broker.records(DEAD)

    def noted(self, number: int = 0) -> CommitMetadata:
        """Return the commit metadata of a partition."""
        position = self.broker.group(GROUP).committed.get(Partition(REQUESTS, number))
        return decode(position.metadata, position.offset) if position else EMPTY

    def committed(self, number: int = 0) -> int | None:
        """Return the committed offset of a partition, or None if it is 0 or missing. At 0 there may be metadata."""
        position = self.broker.group(GROUP).committed.get(Partition(REQUESTS, number))
        return position.offset or None if position else None


class Rival:
    """A member that polls every 0.1 s and takes all partitions it gets. See ``worker.kafka.ports.Listener``."""

    def __init__(self, world: World, consumer: FakeConsumer) -> None:
        self.owned: set[int] = set()
        self.got_at: dict[int, float] = {}
        self.records: list[Record] = []
        self.consumer, self._world = consumer, world
        consumer.subscribe([REQUESTS], self, self)
        self._poll()

    def _poll(self) -> None:
        self.records += [one for one in self.consumer.poll(10, 0.0) if isinstance(one, Record)]
        self._world.clock.after(0.1, self._poll)

    def ready(self, _partitions: Any) -> bool:
        return True

    def assigned(self, positions: Any) -> dict[Partition, int]:
        for partition in positions:
            self.owned.add(partition.number)
            self.got_at[partition.number] = self._world.clock()
        return {}

    def revoked(self, partitions: Any) -> None:
        self.lost(partitions)
        self.consumer.release(partitions)

    def lost(self, partitions: Any) -> None:
        self.owned -= {partition.number for partition in partitions}

    def committed(self, *_: Any) -> None:
        """Do nothing: the rival commits no offsets."""
