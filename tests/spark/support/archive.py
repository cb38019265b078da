"""An archive of Spark's loaded classes, with which a session starts in 5.0 s instead of 8.0.

``python -m tests.spark.support.archive`` creates the file, once for each environment; scripts/test calls it. A JVM
that cannot use the archive starts without it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile

from pipeline.session import CLASSES as FILE
from pipeline.session import ROOT, build_session

_MADE_BEFORE = ROOT / ".venv/.setup-done"
_STEP = "--load"
SECONDS = 120


def option() -> str:
    """Return the option with which a JVM uses the archive if it exists."""
    return f" -XX:SharedArchiveFile={FILE}" if FILE.exists() else ""


def load_classes() -> None:
    """Do what most tests do, so that the classes for it are loaded."""
    spark = build_session("classes", master="local[2]", options={"spark.ui.enabled": "false"})
    with tempfile.TemporaryDirectory() as folder:
        rows = spark.range(1000).selectExpr("id % 7 as a", "id as b", "cast(id as string) as c")
        rows.write.parquet(f"{folder}/rows")
        found = spark.read.parquet(f"{folder}/rows")
        found.groupBy("a").count().join(found, "a").orderBy("b").collect()
    spark.stop()
    jvm: subprocess.Popen[bytes] = spark.sparkContext._gateway.proc  # type: ignore[union-attr]  # set by Spark's launcher
    assert jvm.stdin
    jvm.stdin.close()  # the JVM then ends and writes the file
    jvm.wait(SECONDS)


def make() -> None:
    """Create the archive unless it exists for this environment."""
    if FILE.exists() and FILE.stat().st_mtime > _MADE_BEFORE.stat().st_mtime:
        return
    new = FILE.with_suffix(".new")
    options = f"-XX:ArchiveClassesAtExit={new} -Xlog:disable -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    subprocess.run(
        [sys.executable, "-m", __spec__.name, _STEP],
        env={**os.environ, "SPARK_SUBMIT_OPTS": options},
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    # A runtime without an archive of Java's own classes cannot create one of other classes.
    with contextlib.suppress(FileNotFoundError):
        new.rename(FILE)


if __name__ == "__main__":
    load_classes() if _STEP in sys.argv else make()
