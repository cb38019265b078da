"""The path of one request, as docs/architecture.md shows it: traced in a process with the real loop and executor."""

from __future__ import annotations

import math
import re
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.process_fake.test_threads import Stage
from worker.codec import encode_request
from worker.process.fetcher import IDLE_WAIT
from worker.process.status_block import Command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.process_fake.world import World

ROOT = Path(__file__).parents[2]
STEP = re.compile(r"^\| \d+ \| `([\w.]+)`", re.MULTILINE)
REQUEST = encode_request(1, "x")
SETTLED_IN = 5.0  # seconds of the fake clock; the start of the process is over by then
MOST_FUNCTIONS, MOST_CLASSES = 162, 32  # a reader must know them all: remove some before you add any


def documented() -> list[str]:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    return STEP.findall(page)


class Trace:
    """The functions of the worker in the order of their calls, between ``start`` and ``stop``. All threads."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []  # file and qualified name
        self.on = False

    def __call__(self, frame: Any, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and self.on and "/worker/" in code.co_filename and "/testing/" not in code.co_filename:
            self.calls.append((code.co_filename, code.co_qualname))

    def names(self) -> Iterator[str]:
        """Return the names without comprehensions, which a reader does not see as functions."""
        return (name for _, name in self.calls if not name.endswith(">"))


def trace_one(world: World) -> Trace:
    """Trace one request, from the poll that brings it until its commit is confirmed."""
    trace, stage = Trace(), Stage(world, lambda _request, _context: "done")

    def send() -> None:
        world.raw(REQUEST)

    def start() -> None:
        trace.on = True
        stage.loop._snapshots.due_at = math.inf  # snapshots depend on the clock and not on requests
        world.clock.after(IDLE_WAIT, send)

    def look() -> None:
        if world.committed() == 1:
            trace.on = False
            stage.status.order(Command.DRAIN)
        else:
            world.clock.after(0.001, look)

    world.clock.after(SETTLED_IN, start)
    world.clock.after(SETTLED_IN + 0.001, look)
    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        stage.loop.run()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return trace


def test_the_documented_path_is_the_one_that_a_request_takes(world: World) -> None:
    names, steps = trace_one(world).names(), documented()
    assert len(steps) >= 10
    assert [step for step in steps if step not in names] == [], "not called, or not in this order"


def test_the_path_has_no_more_functions_and_classes_than_its_limits_allow(world: World) -> None:
    """A reader who follows a request has to look at each function and class."""
    names = set(trace_one(world).names())
    classes = {name.split(".")[0] for name in names if "." in name}
    assert len(names) <= MOST_FUNCTIONS, sorted(names)
    assert len(classes) <= MOST_CLASSES, sorted(classes)
