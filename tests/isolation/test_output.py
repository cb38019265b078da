"""The output of a task reaches the output of its replica. The failure of a crashed task contains the end of it."""

from __future__ import annotations

import errno
import os
import select
import signal
from typing import TYPE_CHECKING

import pytest

from tests.isolation.rig import descriptors, names
from worker.isolation import children
from worker.isolation.children import LAST_OUTPUT
from worker.isolation.output import KEPT_BYTES, Outputs, Printed, since
from worker.isolation.output import Output as ChildOutput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.isolation.rig import Rig
    from worker.core.model import Outcome

pytestmark = pytest.mark.timeout(60)

HANDLER = "talkative:handle"
PRINTERS = ("library", "program")


def traceback_of(outcome: Outcome) -> str:
    assert outcome.failure is not None
    return outcome.failure.traceback


def test_the_failure_of_a_crash_shows_the_last_output(
    capfd: pytest.CaptureFixture[str], make: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Output of Python, a library and a program follows the stack. Output of another task is left out."""
    lines: list[dict[str, object]] = []
    monkeypatch.setattr(children.log, "info", lambda event, **fields: lines.append({"event": event, **fields}))
    rig = make(handler=HANDLER)
    rig.run("say other")
    (outcome,) = rig.run("abort free(): invalid pointer")
    stack, _, words = traceback_of(outcome).partition(LAST_OUTPUT)
    assert names([outcome]) == ["FAILED ProcessDied"]
    assert "talkative.py" in stack
    said = "free(): invalid pointer"
    assert sorted(words.split("\n")[1:]) == [said, f"{said}, said the library", f"{said}, said the program"]
    (ended,) = [line for line in lines if line["event"] == "child.ended"]
    assert "said the library" in str(ended["output"])
    shown = capfd.readouterr()
    assert [line for line in shown.out.splitlines() if "child." not in line] == ["other", said]
    assert shown.err.splitlines() == [f"{who}, said the {what}" for who in ("other", said) for what in PRINTERS]


def test_the_failure_of_a_fresh_interpreter_shows_the_last_output(
    capfd: pytest.CaptureFixture[str], make: Callable[..., Rig]
) -> None:
    rig = make(handler="threaded:handle")
    assert "about to crash" in traceback_of(rig.run("crash")[0])
    assert "about to crash\n" in capfd.readouterr().out


def test_a_failure_keeps_only_the_end_of_long_output(
    capfd: pytest.CaptureFixture[str], make: Callable[..., Rig]
) -> None:
    """Every line reaches the output of the replica, whole and in order."""
    count = 50_000
    (outcome,) = make(handler=HANDLER).run(f"abort_after {count}")
    words = traceback_of(outcome).partition(LAST_OUTPUT)[2]
    assert len(words) <= KEPT_BYTES + 1
    assert words.endswith(f"line {count - 1:06}")
    shown = [line for line in capfd.readouterr().out.splitlines() if "child." not in line]
    assert shown == [f"line {number:06}" for number in range(count)]


@pytest.fixture
def target() -> Iterator[tuple[int, int]]:
    """Yield a pipe in place of the replica's output: the end to read, and the end to write."""
    ends = os.pipe()
    os.set_blocking(ends[0], False)
    yield ends
    for end in ends:
        os.close(end)


def test_unread_output_blocks_only_the_child(target: tuple[int, int]) -> None:
    """The template does not wait. The text arrives when the pipe is read again."""
    reader, writer = target
    poll = select.poll()
    outputs, output = Outputs(poll), ChildOutput((writer,))
    (stream,) = output.streams
    child = os.dup(stream._sink)
    outputs.add(output)
    os.set_blocking(writer, False)
    full = 0
    while poll_out(writer):
        full += os.write(writer, b"x" * 4096)
    os.write(child, b"hello\n")
    assert outputs.serve(stream.source)
    assert outputs.serve_stuck() is not None
    assert poll.poll(0) == [], "it waits for the reader, and not for the child"
    assert os.read(reader, full) == b"x" * full
    assert outputs.serve_stuck() is None
    assert os.read(reader, full) == b"hello\n"
    os.close(child)
    assert outputs.finish(output)[-1].text == "hello\n"


def poll_out(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(0))


def test_output_from_before_the_start_is_left_out() -> None:
    assert since(2.0, [Printed(1.0, "a\n"), Printed(2.5, "b\n"), Printed(3.0, "c\n")]) == "b\nc"


def test_the_failure_of_a_killed_task_shows_the_last_output(
    capfd: pytest.CaptureFixture[str], make: Callable[..., Rig]
) -> None:
    """A kill from outside counts like a crash."""
    rig = make(handler="threaded:handle")
    (task,) = rig.submit("wait")
    rig.wait_running(task)
    while "waiting" not in capfd.readouterr().out:
        pass
    os.kill(rig.link.child.pid, signal.SIGKILL)
    assert "waiting" in traceback_of(rig.take(1)[0])


def test_an_output_without_a_second_pipe_leaves_no_first_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The template goes on, and must not use up the descriptors that come back."""
    before, pipes, real = descriptors(), iter([True, False]), os.pipe2

    def pipe2(flags: int) -> tuple[int, int]:
        if not next(pipes):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(flags)

    monkeypatch.setattr(os, "pipe2", pipe2)
    with pytest.raises(OSError, match="Too many open files"):
        ChildOutput()
    assert sorted(descriptors()) == sorted(before)
