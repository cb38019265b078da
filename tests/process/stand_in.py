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
    """Does what the method named by ``config.handler`` does; ``config.handler_kwargs`` has the test's folder."""

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
        """Does everything right and has nothing to do."""
        while not self.turn() & Command.DRAIN:
            pass
        return ExitCode.DRAINED

    def busy(self) -> int:
        """Has a task that does not end, unless it is cancelled."""
        self.start_task()
        while not self.turn() & Command.CANCEL:
            pass
        return ExitCode.DRAIN_TIMED_OUT

    def stubborn(self) -> NoReturn:
        """Has a task that does not even stop when it is cancelled."""
        while True:
            self.turn()

    def unloadable(self) -> int:
        """Cannot load its handler."""
        self.status_block.publish({"state": "failed", "failure": {"code": 3, "message": "no module named nowhere"}})
        return ExitCode.HANDLER_UNLOADABLE

    def exiting(self) -> int:
        """Ends while it loads its handler."""
        self.status_block.publish({"loading": True})
        return 9

    def exiting_later(self) -> int:
        """Ends after it has loaded its handler, which took long enough for the supervisor to notice."""
        self.status_block.publish({"loading": True})
        time.sleep(LONG_LOAD)
        self.turn()
        return 9

    def unreachable(self) -> int:
        """Cannot reach its offset store when another process already has."""
        while not (self.folder / "joined").exists():
            time.sleep(TURN)
        return ExitCode.STORE_UNREACHABLE

    def ending_its_process(self) -> int:
        """Runs a task that ends the process with 3."""
        self.start_task()
        self.turn()
        return 3

    def failing(self) -> int:
        """Cannot use Kafka, and says so."""
        self.status_block.publish({"state": "failed", "failure": {"code": 71, "message": "not authorized"}})
        return ExitCode.CLIENT_FATAL

    def crashing(self) -> int:
        """Ends before it has joined the group."""
        return 9

    def crashing_in_drain(self) -> int:
        """Ends badly when it should drain."""
        self.idle()
        return ExitCode.CLIENT_FATAL

    def aborting_in_drain(self) -> NoReturn:
        """A member of the group that aborts in the middle of its task when it should drain."""
        self.member = "member-1"
        self.start_task()
        self.idle()
        os.abort()

    def importing(self) -> NoReturn:
        """Never gets as far as its first turn."""
        while True:
            time.sleep(TURN)

    def hanging(self) -> NoReturn:
        """Joins, then its loop stops without using CPU."""
        self.turn()
        while True:
            time.sleep(60)

    def seized(self) -> NoReturn:
        """Its next task holds the interpreter lock from its start on: the loop never shows it."""
        self.turn()
        self.status_block.started(0, 1, 2, 75, time.time_ns(), b"img-0269")
        while True:
            pass

    def informed(self) -> int:
        """Writes down what the supervisor tells about crashes."""
        while not self.turn() & Command.DRAIN:
            (self.folder / "crashes.part").write_text(json.dumps(self.status_block.crashes()))
            (self.folder / "crashes.part").rename(self.folder / "crashes")
        return ExitCode.DRAINED

    def spinning(self) -> NoReturn:
        """Joins, then its loop stops and the CPU is used: a handler that keeps the interpreter lock."""
        self.start_task()
        self.turn()
        while True:
            pass

    def waiting(self) -> NoReturn:
        """Joins, then its loop stops while a subprocess of a subprocess uses the CPU: a converter, a renderer."""
        self.turn()
        subprocess.run(["sh", "-c", "sh -c 'while :; do :; done'; true"], check=False)
        raise AssertionError

    def parental(self) -> int:
        """Starts a subprocess, which starts another, and leaves them behind."""
        self.start_subprocesses()
        return self.idle()

    def parental_and_spinning(self) -> NoReturn:
        """The same, and then it holds the interpreter lock."""
        self.start_subprocesses()
        self.spinning()

    def start_subprocesses(self) -> None:
        child = subprocess.Popen(["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        pids = [child.pid, int(child.stdout.readline())]
        (self.folder / "grandchildren.part").write_text(json.dumps(pids))
        (self.folder / "grandchildren.part").rename(self.folder / "grandchildren")

    def reporting(self) -> int:
        """Writes to a file which modules it has imported and which signals are blocked."""
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
    """Stands in for ``worker.kafka.leave``: writes down who has left, after as long as a connection takes."""
    time.sleep(0.5)
    Path(group, "left").write_text(f"{protocol} {member}")
    os._exit(0)


def leave_never(*_: object) -> NoReturn:
    """The same, with a coordinator that does not reply."""
    while True:
        time.sleep(60)
