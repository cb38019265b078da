"""A worker process without Kafka: keeps the cell as a real one does, and misbehaves when it is told to."""

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
from worker.process.cell import Cell, Command

if TYPE_CHECKING:
    from worker.process.config import ProcessConfig

TURN = 0.02  # seconds


class StandIn:
    """Does what the method named by ``config.handler`` does; ``config.handler_kwargs`` has the test's folder."""

    def __init__(self, config: ProcessConfig, cell: Cell) -> None:
        self.config = config
        self.cell = cell
        self.folder = Path(config.handler_kwargs["folder"])
        self.state = State.JOINING
        self.turns = 0

    def turn(self) -> Command:
        self.turns += 1
        self.cell.stamp(0, self.state, 1, os.getpid())
        self.cell.publish({"state": self.state.name.lower(), "counters": {"polls_total": self.turns}})
        (self.folder / "joined").touch()
        command = self.cell.command()
        if command & Command.START_TASKS and self.state is State.JOINING:
            self.state = State.RUNNING
            (self.folder / f"running-{os.getpid()}").touch()
        time.sleep(TURN)
        return command

    def idle(self) -> int:
        """Does everything right and has nothing to do."""
        while not self.turn() & Command.DRAIN:
            pass
        return ExitCode.DRAINED

    def busy(self) -> int:
        """Has a task that does not end, unless it is cancelled."""
        while not self.turn() & Command.CANCEL:
            pass
        return ExitCode.DRAIN_TIMED_OUT

    def stubborn(self) -> NoReturn:
        """Has a task that does not even stop when it is cancelled."""
        while True:
            self.turn()

    def unloadable(self) -> int:
        """Cannot load its handler."""
        self.cell.publish({"state": "failed", "failure": {"code": 3, "message": "no module named nowhere"}})
        return ExitCode.HANDLER_UNLOADABLE

    def unreachable(self) -> int:
        """Cannot reach the broker."""
        return ExitCode.BROKER_UNREACHABLE

    def unreachable_later(self) -> int:
        """Cannot reach the broker any more when another process already has."""
        while not (self.folder / "joined").exists():
            time.sleep(TURN)
        return ExitCode.BROKER_UNREACHABLE

    def crashing(self) -> int:
        """Ends before it has joined the group."""
        return 9

    def crashing_in_drain(self) -> int:
        """Ends badly when it should drain."""
        self.idle()
        return ExitCode.CLIENT_FATAL

    def importing(self) -> NoReturn:
        """Never gets as far as its first turn."""
        while True:
            time.sleep(TURN)

    def hanging(self) -> NoReturn:
        """Joins, then its loop stops without using CPU."""
        self.turn()
        while True:
            time.sleep(60)

    def spinning(self) -> NoReturn:
        """Joins, then its loop stops and the CPU is used: a handler that keeps the interpreter lock."""
        self.turn()
        while True:
            pass

    def parental(self) -> int:
        """Starts a subprocess of its own and leaves it behind."""
        child = subprocess.Popen(["sleep", "600"])
        (self.folder / "grandchild").write_text(str(child.pid))
        return self.idle()

    def telling(self) -> int:
        """Writes down which modules it has imported and which signals are blocked."""
        blocked = [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())]
        told = {"modules": sorted(sys.modules), "blocked": blocked}
        (self.folder / "told").write_text(json.dumps(told))
        return self.idle()


def run(config: ProcessConfig, buffer: Any, _parent: int) -> NoReturn:
    os.setpgid(0, 0)
    faulthandler.enable()
    behaviour = getattr(StandIn(config, Cell(buffer)), config.handler)
    os._exit(behaviour())
