"""What the Spark benchmarks share: a session, timed runs in turns, and their figures."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from benchmarks.figures import TIMES, Figure
from pipeline.session import ROOT, build_session

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

CORES = 2


def session() -> SparkSession:
    """Two cores, no web interface. Spark's Python workers import this suite, which is not installed."""
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return build_session("benchmark", master=f"local[{CORES}]", options={"spark.ui.enabled": "false"})


def consume(table: DataFrame) -> None:
    """Make every row, and keep none."""
    table.write.format("noop").mode("overwrite").save()


def in_turns(ways: Mapping[str, Callable[[], object]], repetitions: int) -> dict[str, list[float]]:
    """Seconds of each way in each repetition; all ways take turns, so that the machine's moods fall on all of them.

    A first round is not counted: it starts workers and compiles.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for repetition in range(repetitions + 1):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            if repetition:
                seconds[name].append(time.perf_counter() - began)
    return seconds


def rates(workload: str, quantity: str, rows: int, seconds: Mapping[str, list[float]], goal: str = "") -> list[Figure]:
    """Rows a second of each way."""
    return [
        Figure(workload, quantity, name, "/s", tuple(rows / each for each in times), goal)
        for name, times in seconds.items()
    ]


def ratio(workload: str, quantity: str, ours: list[float], floor: list[float], goal: str) -> Figure:
    """How fast ours is beside the floor, turn by turn."""
    values = tuple(other / own for own, other in zip(ours, floor, strict=True))
    return Figure(workload, quantity, "pipeline", TIMES, values, goal)
