"""Handlers that misbehave in various ways. The payload names the action."""

from __future__ import annotations

import ctypes
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

STARTED: list[str] = []


def worker_process_init() -> None:
    """Record the set-up of this process, before its first task."""
    STARTED.append(f"init {os.getpid()}")


def worker_process_shutdown() -> None:
    """Record the end of this process, after its last task."""
    if path := os.environ.get("TORN_DOWN"):
        Path(path).write_text(str(os.getpid()))


def handle(request: Any, context: Any) -> Any:
    """Run the action that the payload names, with the argument that follows the name."""
    name, _, argument = request.payload.partition(" ")
    return ACTIONS[name](context, argument)


def ok(_context: Any, _argument: str) -> str:
    """Return the id of the process that ran the task."""
    return str(os.getpid())


def hooks(_context: Any, _argument: str) -> str:
    """Return what the set-up hook has recorded."""
    return ",".join(STARTED)


def report(context: Any, argument: str) -> Any:
    """Report progress and a checkpoint of this many bytes. If a second word follows, kill the process then."""
    size, _, then = argument.partition(" ")
    for step in range(50):
        context.progress(step / 49, f"step {step}")
    context.checkpoint(bytes(int(size)))
    if then:
        os.kill(os.getpid(), signal.SIGKILL)
    return context.resume


def nap(_context: Any, argument: str) -> str:
    """Sleep."""
    time.sleep(float(argument))
    return "slept"


def fail(_context: Any, _argument: str) -> NoReturn:
    """Raise."""
    raise ValueError("no")


def exit_(_context: Any, argument: str) -> NoReturn:
    """End the process."""
    os._exit(int(argument))


def segfault(_context: Any, _argument: str) -> None:
    """Read from an invalid address."""
    ctypes.string_at(0)


def abort(_context: Any, _argument: str) -> NoReturn:
    """Abort, as a failed assertion in C does."""
    os.abort()


def overflow(_context: Any, _argument: str) -> None:
    """Use up the C stack."""
    sys.setrecursionlimit(10**7)
    nested: list[Any] = []
    for _ in range(200_000):
        nested = [nested]
    repr(nested)


def kill(_context: Any, _argument: str) -> None:
    """Kill the process, as the kernel does when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


def kill_parent(_context: Any, _argument: str) -> None:
    """Kill the template process."""
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(10)


def fork(_context: Any, _argument: str) -> str:
    """Fork, and let the copy return from the handler as well."""
    return "parent" if os.fork() else "child"


def close_all(_context: Any, argument: str) -> str:
    """Close every descriptor from number ``argument`` on."""
    os.closerange(int(argument), 4096)
    return "closed"


def reuse(_context: Any, _argument: str) -> str:
    """Close the descriptors, and open other files under their numbers."""
    os.closerange(3, 4096)
    for _ in range(230):
        os.open("/dev/null", os.O_RDWR)
    return "reused"


def grip(_context: Any, argument: str) -> None:
    """Hold the interpreter lock in C."""
    ctypes.PyDLL(None).sleep(int(argument))


def spin(_context: Any, _argument: str) -> NoReturn:
    """Use the CPU without end."""
    while True:
        pass


def stop(_context: Any, _argument: str) -> None:
    """Stop the process."""
    os.kill(os.getpid(), signal.SIGSTOP)


def deaf(_context: Any, _argument: str) -> NoReturn:
    """Ignore every signal that can be ignored."""
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    spin(_context, "")


def heed(context: Any, _argument: str) -> str:
    """Wait until cancelled."""
    context.cancelled.wait(30)
    return f"stopped: {context.cancelled.reason}"


def watch(context: Any, _argument: str) -> str:
    """Poll ``context.cancelled`` until it is true."""
    while not context.cancelled:
        pass
    return f"saw: {context.cancelled.reason}"


def raise_when_cancelled(context: Any, _argument: str) -> NoReturn:
    """Raise an exception when cancelled."""
    context.cancelled.wait(30)
    raise RuntimeError("interrupted")


def brood(_context: Any, argument: str) -> str:
    """Start processes that outlive the task: in a separate session, in a shell's background, and forked twice."""
    subprocess.Popen(["sleep", "1001"], start_new_session=True)
    subprocess.Popen(["sh", "-c", "sleep 1002 & sleep 1003"])
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(1004)
        os._exit(0)
    time.sleep(0.2)
    if argument:
        ctypes.string_at(0)
    return "left some behind"


def brood_and_nap(context: Any, argument: str) -> str:
    """Start processes that outlive the task, then sleep."""
    brood(context, "")
    return nap(context, argument)


def grow(_context: Any, argument: str) -> None:
    """Use more and more memory, ``argument`` MB a second (0: as fast as possible)."""
    rate = float(argument or 0)
    kept = []
    began = time.monotonic()
    while True:
        kept.append(bytearray(b"x") * (4 << 20))
        if rate:
            time.sleep(max(0.0, began + 4 * len(kept) / rate - time.monotonic()))


def grow_beside(_context: Any, _argument: str) -> None:
    """Use more and more memory in another process."""
    code = "import time\nkept = []\nwhile True: kept.append(bytearray(b'x') * (4 << 20)); time.sleep(0.004)"
    subprocess.run([sys.executable, "-c", code], check=False)


def later(_context: Any, _argument: str) -> str:
    """Start a thread that crashes after the end of this task."""
    threading.Timer(0.05, lambda: ctypes.string_at(0)).start()
    return "soon"


def leak(_context: Any, argument: str) -> str:
    """Keep ``argument`` MiB of memory."""
    STARTED.append("x" * (int(argument) << 20))
    return str(os.getpid())


def big(_context: Any, argument: str) -> bytes:
    """Return a result of that many bytes."""
    return b"r" * int(argument)


def send(context: Any, argument: str) -> str:
    """Send two follow-up requests. Fail if the argument is ``fail``."""
    context.send("one", key="a", topic="others")
    context.send("two")
    if argument == "fail":
        raise ValueError(argument)
    return "sent"


def draw(_context: Any, _argument: str) -> str:
    """Return a random number."""
    return str(random.random())


def peek(context: Any, _argument: str) -> str:
    """Return the data of the context, and the payloads of the upcoming requests."""
    upcoming = ",".join(request.payload for request in context.upcoming)
    headers = dict(context.headers)
    return f"{context.origin} {context.attempt} {context.key!r} {headers} {upcoming}"


def score(_context: Any, _argument: str) -> str:
    """Return how likely the kernel is to kill this process when memory runs out."""
    return Path("/proc/self/oom_score_adj").read_text().strip()


def end_others(_context: Any, _argument: str) -> str:
    """Start a program and a fork, and end both with SIGTERM. Return how they ended."""
    program = subprocess.Popen(["sleep", "1005"])
    program.terminate()
    forked = os.fork()
    if forked == 0:
        time.sleep(1006)
    os.kill(forked, signal.SIGTERM)
    return f"{program.wait()} {os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1])}"


def limit_files(_context: Any, _argument: str) -> str:
    """Forbid further file descriptors."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    return "limited"


ACTIONS: dict[str, Callable[[Any, str], Any]] = {
    function.__name__.rstrip("_"): function
    for function in (
        *(ok, hooks, nap, fail, exit_, segfault, abort, overflow, kill, kill_parent, fork, close_all, reuse, grip),
        *(spin, stop, deaf, heed, watch, raise_when_cancelled, brood, grow, grow_beside, later, leak, big, draw, peek),
        *(brood_and_nap, score, limit_files, end_others, send, report),
    )
}
