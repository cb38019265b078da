"""Handlers that fork, run in a separate process. The forked child must not continue as a second worker."""

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
def test_a_forked_child_that_leaves_the_handler_exits(child: str, status: str) -> None:
    """Otherwise the child would use its parent's connections. Only the parent has an outcome."""
    assert output_of(PROGRAM.format(child=child, run=SINGLE)) == [f"OK {status}"]


def test_a_forked_child_that_leaves_a_batch_handler_exits() -> None:
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
