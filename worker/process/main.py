"""The entry of a worker process."""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import os
import signal
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import structlog

from worker import logs
from worker.errors import ExitCode, WorkerError
from worker.process.cell import Cell
from worker.process.wiring import build

if TYPE_CHECKING:
    from worker.process.config import ProcessConfig

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def run(config: ProcessConfig, buffer: Any, parent: int) -> NoReturn:
    """Be a worker process until told to leave; never returns. ``buffer`` is the shared memory of its cell."""
    die_with_parent(parent)
    # A group of its own: a Ctrl-C on the terminal is the supervisor's business, and what the handler starts can be
    # killed together with this process.
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable()  # SIGABRT from the supervisor's watchdog shows every thread's stack
    logs.configure(config.log_level, config.log_format, process=config.name)
    code = _work(config, Cell(buffer))
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: the service thread may still run a task, and clients must not be freed under it.
    os._exit(code)


def _work(config: ProcessConfig, cell: Cell) -> ExitCode:
    log = structlog.get_logger("process")
    try:
        poller = build(config, cell)
        _tune_garbage_collection()
        signal.signal(signal.SIGTERM, lambda *_: setattr(poller, "drain_asked", True))
        return poller.run()
    except WorkerError as error:
        return _failed(cell, error.exit_code, str(error))
    except Exception as error:
        log.exception("process.failed", code=int(ExitCode.PROCESS_CRASHED))
        return _failed(cell, ExitCode.PROCESS_CRASHED, f"{type(error).__name__}: {error}")


def _tune_garbage_collection() -> None:
    """What is imported by now stays, and a stream of short tasks should not be walked through every 700 objects."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


def _failed(cell: Cell, code: ExitCode, message: str) -> ExitCode:
    structlog.get_logger("process").error("process.failed", code=int(code), reason=message)
    cell.publish({"state": "failed", "failure": {"code": int(code), "message": message}})
    return code


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process, and any that the handler forks from it, when its parent ends."""
    _set_death_signal()
    if os.getppid() != parent:  # it ended before we asked
        os._exit(ExitCode.PROCESS_CRASHED)
    os.register_at_fork(after_in_child=_set_death_signal)


def _set_death_signal() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
