"""The code for Spark's executors imports only packages that executors have: neither Spark nor the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("pipeline/messages", "pipeline/exactly_once")
ALLOWED = {"confluent_kafka", "google", "numpy", "pyarrow", "cython_runtime"}
BY_PYARROW = {"cloudpickle", "pandas", "dateutil", "pytz"}  # pyarrow imports them if installed, but does not need them
SCRIPT = """
import importlib, sys
before = set(sys.modules)
for name in sys.argv[1:]:
    importlib.import_module(name)
found = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(name for name in found - set(sys.stdlib_module_names) if not name.startswith("_")))
"""


def test_executor_code_imports_only_packages_that_executors_have() -> None:
    files = [file for package in PACKAGES for file in sorted((ROOT / package).glob("[a-z]*.py"))]
    modules = [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files]
    command = [sys.executable, "-c", SCRIPT, *modules]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert len(modules) > 10
    assert set(done.stdout.split()) - {"pipeline", "worker"} - BY_PYARROW <= ALLOWED
