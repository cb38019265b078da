"""The reader of a replica: one process that reads the state topic, folds it, and serves the worker processes.

A worker process follows the partitions that it owns. The reader replies with the topic's contents at the time of the
request, so it first reads the ends from the broker. Then it passes on new records, except those that the process itself
wrote.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import structlog

from worker import logs
from worker.core.task_state import WAITING, TaskState
from worker.errors import BrokerError, ExitCode
from worker.kafka.state_reader import TopicFollower
from worker.state.frames import Frame, Kind, RecordFrame, pack, text_of, unpack
from worker.state.records import cancel_key, decode, encode_cancel, encode_state, state_key
from worker.state.sockets import Stream, accept, listen
from worker.state.stack_replies import Runner, StackReplies, write_reply
from worker.state.table import StateTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from worker.core.model import Partition
    from worker.core.task_state import Origin
    from worker.kafka.state_reader import KeyValue
    from worker.state.config import ReaderConfig

POLL_SECONDS = 0.05
MOST_UNSENT = 256 << 20  # bytes; a process that is this far behind has to begin again

log = structlog.get_logger("states")


class _Request(NamedTuple):
    """A worker process wants to follow a partition. The reply is sent once the topic is read to its end."""

    place: Partition
    number: int


class _Process:
    """A connected worker process."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.name = ""
        self.following: set[Partition] = set()
        self.requested: list[_Request] = []  # since the last request for the ends
        self.waiting: list[tuple[_Request, Mapping[int, int]]] = []


class Reader:
    """The loop of the reader, on one thread."""

    def __init__(self, config: ReaderConfig, follower: TopicFollower) -> None:
        self._server = listen(config.address)
        self._follower = follower
        self._table = StateTable()
        self._processes: list[_Process] = []
        write = functools.partial(write_reply, config.properties)
        self._stacks = StackReplies(config.topic, config.partitions, self._runner_of, write)

    @property
    def connected(self) -> int:
        """Return the number of connected worker processes."""
        return len(self._processes)

    def close(self) -> None:
        """Disconnect all of them."""
        for process in self._processes:
            process.stream.close()
        self._server.close()

    def turn(self, timeout: float) -> None:
        """Handle worker processes and new records, waiting up to ``timeout`` seconds for the topic."""
        while (connection := accept(self._server)) is not None:
            self._processes.append(_Process(Stream(connection)))
        for process in self._processes:
            process.stream.serve()
            for frame in unpack(process.stream.received):
                if isinstance(frame, Frame):
                    self._obey(process, frame)
        self._look_at_ends()
        for record in self._follower.poll(timeout):
            self._take(record)
        for process in self._processes:
            self._answer(process)
            process.stream.serve()
        self._drop_ended()

    def _obey(self, process: _Process, frame: Frame) -> None:
        if frame.kind is Kind.HELLO:
            process.name = frame.text
        elif frame.kind is Kind.FOLLOW:
            process.requested.append(_Request(frame.place, frame.number))
        elif frame.kind is Kind.UNFOLLOW:
            place = frame.place
            process.following.discard(place)
            process.requested = [one for one in process.requested if one.place != place]
            process.waiting = [entry for entry in process.waiting if entry[0].place != place]

    def _look_at_ends(self) -> None:
        asking = [process for process in self._processes if process.requested]
        ends = self._follower.ends() if asking else None
        if ends is None:
            return
        for process in asking:
            process.waiting += [(request, ends) for request in process.requested]
            process.requested.clear()

    def _runner_of(self, origin: Origin) -> Runner | None:
        """Return the process of this replica that runs a long task."""
        state = self._table.states.get(origin)
        if state is None or state.state == WAITING:
            return None
        found = (Runner(one.name, one.stream.pid) for one in self._processes if one.name == state.worker)
        return next(found, None)

    def _take(self, record: KeyValue) -> None:
        self._stacks.take(record.key, record.value)
        self._table.apply(record.key, record.value)
        found = decode(record.key, record.value)
        if found is None:
            return
        data = None
        for process in self._processes:
            by_itself = isinstance(found, TaskState) and found.worker == process.name
            if found.origin.place in process.following and not by_itself:
                data = data or pack(RecordFrame(record.key or b"", record.value))
                process.stream.send(data)

    def _answer(self, process: _Process) -> None:
        for request, ends in list(process.waiting):
            if self._follower.has_reached(ends):
                process.waiting.remove((request, ends))
                process.following.add(request.place)
                for frame in self._snapshot(request):
                    process.stream.send(pack(frame))

    def _snapshot(self, request: _Request) -> Iterator[Frame | RecordFrame]:
        place, table = request.place, self._table
        yield Frame(Kind.BEGIN, text_of(place))
        for origin, state in table.states.items():
            if origin.place == place:
                yield RecordFrame(state_key(origin), encode_state(state))
        for origin, wanted in table.cancels.items():
            if origin.place == place:
                yield RecordFrame(cancel_key(origin), encode_cancel(wanted))
        yield Frame(Kind.CAUGHT_UP, text_of(place), request.number)

    def _drop_ended(self) -> None:
        for process in list(self._processes):
            if process.stream.ended or process.stream.unsent > MOST_UNSENT:
                process.stream.close()
                self._processes.remove(process)


def run(config: ReaderConfig) -> NoReturn:
    """Run the reader's process, which ends with its replica. On an error it ends and is restarted."""
    logs.configure(config.log_level, config.log_format, process="state-reader")
    reader = Reader(config, TopicFollower(config.properties, config.topic, config.partitions))
    try:
        while True:
            reader.turn(POLL_SECONDS)
    except BrokerError as error:
        log.warning("states.reader_failed", reason=str(error))
    os._exit(ExitCode.PROCESS_CRASHED)  # freeing a client that cannot reach its broker takes long
