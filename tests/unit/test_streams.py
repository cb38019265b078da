"""The last flush of a process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.unit.documents import ROOT

CODE = 73


@pytest.mark.parametrize(
    "trouble",
    [
        "pass",
        "sys.stdout = open('/dev/full', 'w'); print('x')",
        "sys.stdout.close()",
        "sys.stdout = None",
        "reader, writer = os.pipe(); os.close(reader); sys.stdout = os.fdopen(writer, 'w'); print('x')",
    ],
)
def test_a_process_keeps_its_exit_code_whatever_has_become_of_stdout(trouble: str) -> None:
    """The supervisor decides by the code. Exit handlers and other threads do not run any further."""
    program = f"""
import atexit, os, sys, threading, time
from worker.streams import end_process
atexit.register(print, "an exit handler")
threading.Thread(target=time.sleep, args=(30,)).start()
{trouble}
end_process({CODE})
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=20, cwd=ROOT
    )
    assert (done.returncode, done.stdout, done.stderr) == (CODE, "", "")
