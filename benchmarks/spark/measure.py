"""The common parts of the Spark benchmarks: a session, timed runs in turn, and their figures."""

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
    """Return a session with two cores and no web interface. Its Python workers import this suite from its folder."""
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return build_session("benchmark", master=f"local[{CORES}]", options={"spark.ui.enabled": "false"})


def consume(table: DataFrame) -> None:
    """Compute every row, and discard it."""
    table.write.format("noop").mode("overwrite").save()


def in_turns(ways: Mapping[str, Callable[[], object]], repetitions: int) -> dict[str, list[float]]:
    """Return the seconds of each way in each repetition. The ways take turns, so that all meet the same conditions.

    The first round does not count, because it starts workers and compiles.
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
    """Return the rows per second of each way."""
    return [
        Figure(workload, quantity, name, "/s", tuple(rows / each for each in times), goal)
        for name, times in seconds.items()
    ]


def ratio(workload: str, quantity: str, ours: list[float], floor: list[float], goal: str) -> Figure:
    """Return the pipeline's speed ÷ that of the lower bound, repetition by repetition."""
    values = tuple(other / one for one, other in zip(ours, floor, strict=True))
    return Figure(workload, quantity, "pipeline", TIMES, values, goal)
