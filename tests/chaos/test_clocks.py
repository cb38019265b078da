"""Wall clocks that jump while a process runs."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from chaos import clocks
from chaos import plan as plans
from chaos.clocks import JUMP, Clocks, unshifted
from chaos.options import Options

if TYPE_CHECKING:
    from pathlib import Path

needs_compiler = pytest.mark.skipif(not clocks.rights(), reason="needs a C compiler")
_PROGRAM = """
import sys, threading, time
wall, monotonic = time.time() - time.monotonic(), time.monotonic()
print("begun", flush=True)
sys.stdin.readline()
condition = threading.Condition()
with condition:
    condition.wait(0.2)
print(round(time.time() - time.monotonic() - wall), round(time.monotonic() - monotonic, 1) < 30)
"""
_CLIENT = """
import sys, time
from confluent_kafka import Consumer
client = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "group", "log_level": 0})
client.poll(0.5)
print("begun", flush=True)
sys.stdin.readline()
begin = time.monotonic()
for _ in range(20):
    client.poll(0.05)
print("in time" if time.monotonic() - begin < 5 else "late")
"""


def output_after_a_jump(ours: Clocks, program: str, seconds: int) -> str:
    """Run a program, let its clock jump when it has printed its first line, and return the rest of its output."""
    environment = {**os.environ, **ours.environment("r0")}
    with subprocess.Popen([sys.executable, "-c", program], env=environment, stdin=-1, stdout=-1, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            ours.set("r0", seconds)
            return process.communicate("\n", timeout=20)[0]
        finally:
            process.kill()


@needs_compiler
@pytest.mark.parametrize("seconds", [JUMP, -JUMP, 0])
def test_the_wall_clock_of_a_running_process_jumps_and_the_monotonic_one_does_not(tmp_path: Path, seconds: int) -> None:
    ours = Clocks(tmp_path, {"clocks"})
    assert output_after_a_jump(ours, _PROGRAM, seconds) == f"{seconds} True\n"
    ours.heal()
    assert (tmp_path / "clock-r0").read_bytes() == bytes(8)


@needs_compiler
def test_a_kafka_client_waits_for_the_right_time_under_a_clock_that_jumped(tmp_path: Path) -> None:
    assert output_after_a_jump(Clocks(tmp_path, {"clocks"}), _CLIENT, JUMP) == "in time\n"


def test_no_clock_is_shifted_without_the_feature(tmp_path: Path) -> None:
    assert Clocks(tmp_path, {"json"}).environment("r0") == {}


@pytest.mark.parametrize("shift", [0, JUMP, -JUMP])
@pytest.mark.parametrize("off", [-4000.0, 0.0, 4000.0])
def test_a_shifted_stamp_is_recognized(shift: int, off: float) -> None:
    assert unshifted(1e9 + off + shift, near=1e9) == 1e9 + off


def test_a_plan_has_no_clock_jumps_if_the_machine_does_not_allow_them() -> None:
    drawn = plans.draw(Options(3, faults=30, features="clocks"), rights=())
    assert not [one for one in drawn.faults if one.kind.area == "clock"]
