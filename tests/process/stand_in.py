"""A worker process without Kafka: it writes the status block as a real one does, and misbehaves on demand."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from worker.core.lifecycle import State
from worker.errors import ExitCode
from worker.process.status_block import Command, StatusBlock

if TYPE_CHECKING:
    from worker.process.config import ProcessConfig

TOKEN = "a0000001"
TURN = 0.02  # seconds
LONG_LOAD = 0.5  # seconds; several of the supervisor's turns


class StandIn:
    """A process that runs the method named by ``config.handler``. ``config.handler_kwargs`` has the test's folder."""

    def __init__(self, config: ProcessConfig, status_block: StatusBlock) -> None:
        self.config = config
        self.status_block = status_block
        self.folder = Path(config.handler_kwargs["folder"])
        self.state = State.JOINING
        self.turns = 0
        self.task: dict[str, Any] | None = None
        self.member = ""

    def turn(self) -> Command:
        self.turns += 1
        self.status_block.stamp(0, self.state, 1, os.getpid())
        counters = {"polls_total": self.turns}
        state, identity = self.state.name.lower(), {"protocol": "consumer", "member": self.member, "token": TOKEN}
        self.status_block.publish({"state": state, "counters": counters, "task": self.task, **identity})
        (self.folder / "joined").touch()
        command = self.status_block.command()
        if command & Command.START_TASKS and self.state is State.JOINING:
            self.state = State.RUNNING
            (self.folder / f"running-{os.getpid()}").touch()
        time.sleep(TURN)
        return command

    def start_task(self) -> None:
        origin = {"topic": "requests", "partition": 1, "offset": 75}
        self.task = {**origin, "key": "img-0269", "sequence": 269, "attempt": 2, "started": time.time()}

    def idle(self) -> int:
        """Run without a task until the drain."""
        while not self.turn() & Command.DRAIN:
            pass
        return ExitCode.DRAINED

    def busy(self) -> int:
        """Run a task that ends only when it is cancelled."""
        self.start_task()
        while not self.turn() & Command.CANCEL:
            pass
        return ExitCode.DRAIN_TIMED_OUT

    def stubborn(self) -> NoReturn:
        """Run a task that does not even stop when it is cancelled."""
        while True:
            self.turn()

    def unloadable(self) -> int:
        """Fail to load the handler."""
        self.status_block.publish({"state": "failed", "failure": {"code": 3, "message": "no module named nowhere"}})
        return ExitCode.HANDLER_UNLOADABLE

    def exiting(self) -> int:
        """End while the handler is loaded."""
        self.status_block.publish({"loading": True})
        return 9

    def exiting_later(self) -> int:
        """End after the handler was loaded, which takes long enough for the supervisor to notice."""
        self.status_block.publish({"loading": True})
        time.sleep(LONG_LOAD)
        self.turn()
        return 9

    def unreachable(self) -> int:
        """Fail to reach the offset store after another process has joined."""
        while not (self.folder / "joined").exists():
            time.sleep(TURN)
        return ExitCode.STORE_UNREACHABLE

    def ending_its_process(self) -> int:
        """Run a task that ends the process with exit code 3."""
        self.start_task()
        self.turn()
        return 3

    def failing(self) -> int:
        """Fail to use Kafka, and report it."""
        self.status_block.publish({"state": "failed", "failure": {"code": 71, "message": "not authorized"}})
        return ExitCode.CLIENT_FATAL

    def crashing(self) -> int:
        """End before joining the group."""
        return 9

    def crashing_in_drain(self) -> int:
        """End with an error when the drain begins."""
        self.idle()
        return ExitCode.CLIENT_FATAL

    def aborting_in_drain(self) -> NoReturn:
        """Join the group, start a task, and abort in the middle of it when the drain begins."""
        self.member = "member-1"
        self.start_task()
        self.idle()
        os.abort()

    def importing(self) -> NoReturn:
        """Never reach the first turn."""
        while True:
            time.sleep(TURN)

    def hanging(self) -> NoReturn:
        """Join, then stop the loop without using CPU."""
        self.turn()
        while True:
            time.sleep(60)

    def seized(self) -> NoReturn:
        """Run a task that holds the interpreter lock from its start on, so that the loop never reports it."""
        self.turn()
        self.status_block.started(0, 1, 2, 75, time.time_ns(), b"img-0269")
        while True:
            pass

    def informed(self) -> int:
        """Write to a file what the supervisor reports about crashes."""
        while not self.turn() & Command.DRAIN:
            (self.folder / "crashes.part").write_text(json.dumps(self.status_block.crashes()))
            (self.folder / "crashes.part").rename(self.folder / "crashes")
        return ExitCode.DRAINED

    def spinning(self) -> NoReturn:
        """Join, then stop the loop and use CPU, like a handler that holds the interpreter lock."""
        self.start_task()
        self.turn()
        while True:
            pass

    def waiting(self) -> NoReturn:
        """Join, then stop the loop while a subprocess of a subprocess uses the CPU, like a converter or a renderer."""
        self.turn()
        subprocess.run(["sh", "-c", "sh -c 'while :; do :; done'; true"], check=False)
        raise AssertionError

    def parental(self) -> int:
        """Start a subprocess that starts another, and leave both running."""
        self.start_subprocesses()
        return self.idle()

    def parental_and_spinning(self) -> NoReturn:
        """Start the same subprocesses, then hold the interpreter lock."""
        self.start_subprocesses()
        self.spinning()

    def start_subprocesses(self) -> None:
        child = subprocess.Popen(["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        pids = [child.pid, int(child.stdout.readline())]
        (self.folder / "grandchildren.part").write_text(json.dumps(pids))
        (self.folder / "grandchildren.part").rename(self.folder / "grandchildren")

    def reporting(self) -> int:
        """Write to a file which modules are imported and which signals are blocked."""
        blocked = [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())]
        found = {"modules": sorted(sys.modules), "blocked": blocked}
        (self.folder / "environment").write_text(json.dumps(found))
        return self.idle()


def run(config: ProcessConfig, buffer: Any) -> NoReturn:
    os.setpgid(0, 0)
    faulthandler.enable()
    behaviour = getattr(StandIn(config, StatusBlock(buffer)), config.handler)
    os._exit(behaviour())


def leave(_properties: object, group: str, protocol: str, member: str, *_: object) -> NoReturn:
    """Stand in for ``worker.kafka.leave``: write down which member has left, after the time of a connection."""
    time.sleep(0.5)
    Path(group, "left").write_text(f"{protocol} {member}")
    os._exit(0)


def leave_never(*_: object) -> NoReturn:
    """Stand in for ``worker.kafka.leave`` with a coordinator that does not reply."""
    while True:
        time.sleep(60)
