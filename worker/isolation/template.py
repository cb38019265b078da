"""The template process. It imports the handler once, runs no task, and forks a child on request.

It also passes on the output of children, and cleans up: when a child ends, every process that it leaves behind becomes
a child of the template and is killed. If the import makes forking unsafe, the template starts over without the import,
and every child is a fresh interpreter.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
import traceback
from typing import Any, NamedTuple, NoReturn

from worker import lean, linux
from worker.errors import ExitCode, HandlerError
from worker.isolation import control, forking, settling
from worker.isolation.config import Channel, ChildConfig
from worker.isolation.interpreter import command
from worker.isolation.output import Output, Outputs

FORK, FRESH = "fork", "fresh"


class _Imported(NamedTuple):
    """What children get from the import: the handler, and the action that it has set for SIGCHLD."""

    handler: Any
    on_child: Any


def main(descriptor: str, parent: str, mode: str) -> NoReturn:
    """Run the template. Arguments: the control socket's descriptor, the worker's pid, and how children are created."""
    linux.die_with(int(parent))  # nothing reads the socket during the import
    os.setpgid(0, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the supervisor decides what these mean
        signal.signal(number, signal.SIG_IGN)
    linux.close_at_exec(int(descriptor))
    connection = socket.socket(fileno=int(descriptor))
    message, _ = control.receive(connection)
    if message is None:
        os._exit(0)
    config = ChildConfig(**message)
    imported = _import(config, connection, parent) if mode == FORK else None
    linux.adopt_orphans()
    linux.outlive_parent()  # from now on the end of the socket shows it, and there may be something to clean up
    Template(connection, config, imported).serve()


def _import(config: ChildConfig, connection: socket.socket, parent: str) -> _Imported:
    """Import the handler. End the process, or start it over, if there is none to be forked."""
    prepare(config)
    from worker.handlers.loader import load  # noqa: PLC0415 - a template of fresh interpreters does without
    from worker.isolation import child  # noqa: F401, PLC0415 - forked children have it

    try:
        handler = load(config.handler, config.kwargs)
    except HandlerError as error:
        control.send(connection, {"failed": str(error)})
        os._exit(ExitCode.HANDLER_UNLOADABLE)
    on_child = signal.getsignal(signal.SIGCHLD)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if the import ignores it, nobody learns how a child ended
    gc.collect()
    gc.freeze()  # children share these objects; a collection in a child does not copy them
    gc.set_threshold(10_000, 20, 50)
    try:
        found = forking.obstacles({connection.fileno()})
    except OSError as error:
        if not linux.is_shortage(error):
            raise
        control.send(connection, {"refused": str(error)})
        os._exit(ExitCode.UNSTARTABLE)
    if found:
        control.send(connection, {"cannot_fork": found})
        linux.keep_at_exec(connection.fileno())
        os.execv(sys.executable, command(__name__, connection.fileno(), parent, FRESH))  # noqa: S606 - no shell wanted
    return _Imported(handler, on_child)


def prepare(config: ChildConfig) -> None:
    """Set up logging as in the worker process."""
    lean.import_structlog()
    from worker import logs  # noqa: PLC0415 - see above

    logs.configure(config.log_level, config.log_format, process=config.name)


class _Child(NamedTuple):
    pid: int
    output: Output


class Template:
    """Forks, watches and cleans up. Single-threaded."""

    def __init__(self, connection: socket.socket, config: ChildConfig, imported: _Imported | None) -> None:
        self._connection = connection
        self._config = config
        self._imported = imported  # None means that children are fresh interpreters
        self._pid = os.getpid()
        self._children: dict[int, _Child] = {}  # by the descriptor that signals its end
        self._known = set(linux.children_of(self._pid))  # processes that the import has started belong to the handler
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        self._outputs = Outputs(self._poll)

    def serve(self) -> NoReturn:
        """Run until the worker process is gone."""
        self._send({"ready": True})
        while True:
            for descriptor, _ in self._poll.poll(self._outputs.serve_stuck()):
                if self._outputs.serve(descriptor):
                    continue
                if descriptor in self._children:
                    self._report_end(descriptor)
                elif descriptor == self._connection.fileno():
                    self._obey()

    def _obey(self) -> None:
        message, descriptors = control.receive(self._connection)
        if message is None:
            self._end()
        try:
            pid, watch, output = self._fork(descriptors)
        except OSError as error:
            if not linux.is_shortage(error):
                raise
            self._send({"refused": str(error)})  # other children may be running
            return
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self._children[watch] = _Child(pid, output)
        self._poll.register(watch, select.POLLIN)
        self._outputs.add(output)
        self._send({"started": pid}, [watch])

    def _fork(self, descriptors: list[int]) -> tuple[int, int, Output]:
        """Return the pid of another child, a descriptor that signals its end, and its output. Raise OSError."""
        output, pid = Output(), 0
        try:
            pid = os.fork()
            if pid == 0:
                self._be_child(Channel(*descriptors), output)
            return pid, os.pidfd_open(pid), output
        except OSError:
            output.discard()
            if pid:
                linux.kill(pid)
                os.waitpid(pid, 0)
            raise

    def _be_child(self, channel: Channel, output: Output) -> NoReturn:
        try:
            settling.settle_in(self._pid)
            self._connection.close()
            for watch in self._children:
                os.close(watch)
            self._outputs.close()
            output.stand_in()
            if self._imported is not None:
                from worker.isolation import child  # noqa: PLC0415 - it was imported with the handler

                if self._imported.on_child is not None:  # None: set by C code
                    signal.signal(signal.SIGCHLD, self._imported.on_child)
                child.run(self._config, self._imported.handler, channel)
            self._execute(channel)
        except BaseException:  # noqa: BLE001 - nothing of a child may return into the template
            with contextlib.suppress(OSError):  # stderr is closed too
                traceback.print_exc()
        finally:
            os._exit(ExitCode.PROCESS_CRASHED)

    def _execute(self, channel: Channel) -> NoReturn:
        """Become a fresh interpreter. The configuration is passed in a memory file because it may contain secrets."""
        configuration = os.memfd_create("config", 0)
        os.write(
            configuration, json.dumps({name: getattr(self._config, name) for name in ChildConfig.__slots__}).encode()
        )
        for descriptor in channel:
            linux.keep_at_exec(descriptor)
        os.execv(sys.executable, command("worker.isolation.fresh", configuration, *channel))  # noqa: S606 - no shell wanted

    def _report_end(self, watch: int) -> None:
        pid, output = self._children.pop(watch)
        self._poll.unregister(watch)
        status, cpu_seconds = _reap(pid, watch)
        self._kill_orphans()
        printed = self._outputs.finish(output)
        self._send({"ended": pid, "status": status, "cpu_seconds": cpu_seconds, "printed": printed})

    def _send(self, message: dict[str, Any], descriptors: list[int] | None = None) -> None:
        try:
            control.send(self._connection, message, descriptors)
        except OSError:  # the worker process is gone
            self._end()

    def _kill_orphans(self) -> None:
        """Kill the processes that a child has left behind, which became our children, and those that they started."""
        running = {child.pid for child in self._children.values()}
        while orphans := set(linux.children_of(self._pid)) - self._known - running:
            foreign = {pid for pid in orphans if not linux.kill(pid)}  # it has changed its user
            self._known |= foreign
            for pid in orphans - foreign:
                os.waitpid(pid, 0)

    def _end(self) -> NoReturn:
        ended = [*self._children.items()]
        for watch, child in ended:
            linux.kill(child.pid)
            _reap(child.pid, watch)
        self._children.clear()
        self._known.clear()
        self._kill_orphans()
        for _, child in ended:
            self._outputs.finish(child.output)
        os._exit(0)


def _reap(pid: int, watch: int) -> tuple[int, float]:
    """Return status and CPU seconds of a child that has ended or is about to. Kill the rest of its process group."""
    os.waitid(os.P_PIDFD, watch, os.WEXITED | os.WNOWAIT)
    linux.kill_group(pid)  # before the process is reaped, because afterwards its number may be reused
    _, status, usage = os.wait4(pid, 0)
    os.close(watch)
    return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime
