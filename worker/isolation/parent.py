"""The worker process's side: starts the template process, requests children, and learns how they ended."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from worker import linux
from worker.errors import ExitCode, HandlerError, WorkerError, ended_by_handler
from worker.isolation import control, page
from worker.isolation.config import Channel
from worker.isolation.interpreter import command
from worker.isolation.output import Printed
from worker.isolation.template import FORK, FRESH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.isolation.config import ChildConfig

REPLY_SECONDS = 10.0  # a template that takes longer to reply is stopped or stuck
CRASH_BYTES = 16_000  # the most that is kept of the stack of a crash

log = structlog.get_logger("isolation")


class TemplateDiedError(WorkerError):
    """The template process has ended or does not reply."""

    exit_code = ExitCode.PROCESS_CRASHED


class RefusedProcessError(WorkerError):
    """The kernel refuses another process because memory, process numbers or descriptors are short. This may pass."""

    exit_code = ExitCode.UNSTARTABLE


class End(NamedTuple):
    """How a child ended."""

    status: int  # exit code, or the signal's number below 0
    cpu_seconds: float  # of its whole life
    printed: Sequence[Printed] = ()  # its last output


class ChildProcess:
    """A child, and the parent's ends of everything that connects them."""

    def __init__(self, wakeup: int) -> None:
        mine, theirs = socket.socketpair()  # large tasks pass through it three times as fast as through a pipe
        self.tasks, tasks = mine.detach(), theirs.detach()
        self.reports, reports = os.pipe2(os.O_CLOEXEC)
        for descriptor in (self.tasks, self.reports):
            os.set_blocking(descriptor, False)
        self.cancel = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        shared = os.memfd_create("page", os.MFD_CLOEXEC)
        os.ftruncate(shared, page.SIZE)
        self.words = page.words(shared)
        self._crash = os.memfd_create("crash", os.MFD_CLOEXEC)
        self.channel = Channel(tasks, reports, wakeup, self.cancel, shared, self._crash)
        self.pid = 0
        self.watch = -1  # a pidfd: readable when the child has ended
        self.template: Template | None = None  # the template that forked it

    def passed_on(self, pid: int, watch: int, template: Template) -> None:
        """Record that the child exists and has its ends of the channel. Close our copies of them."""
        self.pid, self.watch, self.template = pid, watch, template
        self._drop_theirs()

    def _drop_theirs(self) -> None:
        for descriptor in (self.channel.tasks, self.channel.reports, self.channel.page):
            os.close(descriptor)

    def kill(self) -> None:
        """Send SIGKILL, unless it has ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.watch, signal.SIGKILL)

    def finish(self) -> None:
        """Let the child end when it has nothing more to do."""
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self.tasks)) as connection:
            connection.shutdown(socket.SHUT_WR)

    def end(self) -> End:
        """Return how the child ended. Everything it started is gone by then. Raise TemplateDiedError."""
        if self.template is None:
            raise AssertionError("it was never started")
        return self.template.end_of(self)

    def crash(self) -> str:
        """Return the stack that faulthandler has written."""
        return os.pread(self._crash, CRASH_BYTES, 0).decode(errors="replace")

    def close(self) -> None:
        """Free all descriptors. The child has ended, or was never started."""
        if self.watch >= 0:
            os.close(self.watch)
        else:
            self._drop_theirs()
        for descriptor in (self.tasks, self.reports, self.cancel, self._crash):
            os.close(descriptor)


class Template:
    """The template process. Use it from one thread at a time."""

    def __init__(self, config: ChildConfig) -> None:
        """Start it and wait until the handler is imported. Raise HandlerError, TemplateDiedError or
        RefusedProcessError.
        """
        self._message = dataclasses.asdict(config)
        self._connection, theirs = control.pair()
        arguments = command("worker.isolation.template", theirs.fileno(), os.getpid(), FORK)
        with theirs:
            # Use exec, and never fork this process, because it has a Kafka client and threads.
            try:
                self._process = subprocess.Popen(arguments, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)  # noqa: S603
            except OSError as error:
                self._connection.close()
                if not linux.is_shortage(error):
                    raise
                raise RefusedProcessError(f"the template process could not be started: {error}") from error
        self.mode = FORK
        self.obstacles: list[str] = []  # what the import has left that makes forking unsafe
        self._ends: dict[int, End] = {}  # pid -> end, of children that have ended but were not queried yet
        try:
            self._wait_ready()
        except WorkerError:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Return the pid of the template."""
        return self._process.pid

    def _wait_ready(self) -> None:
        control.send(self._connection, self._message)
        answer, _ = control.receive(self._connection)  # the import may take minutes
        if answer is not None and "cannot_fork" in answer:
            self.mode, self.obstacles = FRESH, answer["cannot_fork"]
            control.send(self._connection, self._message)
            answer, _ = control.receive(self._connection)
        if answer is None:
            raise self._import_failed()
        if "failed" in answer:
            raise HandlerError(answer["failed"])
        if "refused" in answer:
            raise RefusedProcessError(f"the template process cannot start others: {answer['refused']}")
        self._connection.settimeout(REPLY_SECONDS)

    def fork(self, wakeup: int) -> ChildProcess:
        """Return another child, which wakes the poll thread through this eventfd.

        Raise TemplateDiedError or RefusedProcessError.
        """
        child = ChildProcess(wakeup)
        try:
            answer, descriptors = self._request(child.channel)
            if "refused" in answer:
                raise RefusedProcessError(f"a child process could not be started: {answer['refused']}")
        except WorkerError:
            child.close()
            raise
        child.passed_on(answer["started"], descriptors[0], self)
        log.info("child.started", pid=child.pid)
        return child

    def _request(self, channel: Channel) -> tuple[dict[str, Any], list[int]]:
        try:
            control.send(self._connection, {"fork": True}, list(channel))
        except OSError as error:
            raise TemplateDiedError("the template process has ended") from error
        while "ended" in (reply := self._reply())[0]:  # another child ended meanwhile
            self._record_end(reply[0])
        return reply

    def _record_end(self, answer: dict[str, Any]) -> None:
        printed = [Printed(*piece) for piece in answer["printed"]]
        self._ends[answer["ended"]] = End(answer["status"], answer["cpu_seconds"], printed)

    def _reply(self) -> tuple[dict[str, Any], list[int]]:
        try:
            answer, descriptors = control.receive(self._connection)
        except TimeoutError as error:
            self._process.kill()
            self._connection.close()  # a late reply must not answer a later request
            raise TemplateDiedError("the template process does not answer") from error
        except OSError as error:
            raise TemplateDiedError("the template process was closed") from error
        if answer is None:
            raise TemplateDiedError("the template process has ended")
        return answer, descriptors

    def end_of(self, child: ChildProcess) -> End:
        """Return how a child ended. Everything it started is gone by then. Raise TemplateDiedError."""
        try:
            while child.pid not in self._ends:
                self._record_end(self._reply()[0])
        except TemplateDiedError:
            linux.kill_group(child.pid)  # nothing else will end this group now
            raise
        return self._ends.pop(child.pid)

    def close(self) -> None:
        """End the template and everything it has started."""
        self._connection.close()
        try:
            self._process.wait(REPLY_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _import_failed(self) -> WorkerError:
        """Return the error for an import that has ended the process. Another one may survive if a signal ended it."""
        try:
            status = self._process.wait(REPLY_SECONDS)
        except subprocess.TimeoutExpired:
            return TemplateDiedError("the process that imports the handler closed its socket")
        if status >= 0:
            return ended_by_handler(self._message["handler"], status)
        return TemplateDiedError(f"the process that imports the handler was ended by {signal.Signals(-status).name}")
