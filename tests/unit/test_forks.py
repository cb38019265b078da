"""A handler that forks, in a separate process: its child must not go on as a second worker."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.unit.documents import ROOT

PROGRAM = """
import os
from tests.unit.support import a_task
from worker.handlers.attempt import AttemptRunner
from worker.handlers.batch import BatchRunner

def fork():
    child = os.fork()
    if child == 0:
        {child}
    return str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

def handler(request, context):
    return fork()

def handle_batch(batch, context):
    batch.ack(batch[0], fork())

{run}
"""
SINGLE = """
outcome = AttemptRunner(handler, {}, 3).run(a_task())
print(outcome.verdict.name, outcome.result.decode())
"""
BATCH = """
BatchRunner(handle_batch, {}, 3, lambda outcome: print(outcome.verdict.name, outcome.result.decode())).run([a_task()])
"""


@pytest.mark.parametrize(("child", "status"), [("return 'child'", "0"), ("raise ValueError('child')", "1")])
def test_a_forked_child_that_comes_back_is_no_second_worker(child: str, status: str) -> None:
    """It ends there and then: it would use its parent's connections. Only the parent has an outcome."""
    assert output_of(PROGRAM.format(child=child, run=SINGLE)) == [f"OK {status}"]


def test_nor_is_the_child_of_a_handler_of_batches() -> None:
    assert output_of(PROGRAM.format(child="raise ValueError('child')", run=BATCH)) == ["OK 1"]


def output_of(program: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=55,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
    )
    return done.stdout.splitlines()
