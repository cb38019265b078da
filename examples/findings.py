"""What the demo shows at the end: the best models, the work of each worker, and how busy the CPUs were."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyarrow import dataset
from rich.text import Text

from worker.cli.console import columns

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rich.table import Table

BEST = 3  # models shown of each data set

Row = dict[str, Any]  # of the table of answers; its columns are in docs/pipeline.md


def read(answers: Path) -> list[Row]:
    """Return all rows of a table of answers."""
    rows: list[Row] = dataset.dataset(answers, format="parquet", partitioning=None).to_table().to_pylist()
    return rows


def best_models(rows: Iterable[Row]) -> Table:
    """Return the models with the best mean scores, by data set."""
    table = columns("data set", "model", "parameters", "score", "±", "seconds")
    results = [json.loads(row["result_text"]) for row in rows if row["outcome"] == "OK"]
    for name in sorted({result["dataset"] for result in results}):
        ranking = sorted((r for r in results if r["dataset"] == name), key=lambda r: -r["score_mean"])
        for result in ranking[:BEST]:
            params = ", ".join(f"{name}={value}" for name, value in result["params"].items())
            numbers = (f"{result['score_mean']:.4f}", f"{result['score_std']:.4f}", f"{result['fit_seconds']:.2f}")
            table.add_row(*map(Text, (name, result["model"], params, *numbers)))
    return table


def seconds(row: Row) -> float:
    """Return the run time of the task in seconds."""
    return float((row["finished_at"] - row["started_at"]).total_seconds())


def work(rows: Iterable[Row]) -> Table:
    """Return tasks and time by worker process."""
    table = columns("process", "tasks", "busy seconds", "CPU seconds", "longest task")
    rows = list(rows)
    for worker in sorted({row["worker"] for row in rows}):
        mine = [row for row in rows if row["worker"] == worker]
        busy, cpu = sum(map(seconds, mine)), sum(row["cpu_seconds"] for row in mine)
        table.add_row(worker, f"{len(mine)}", f"{busy:.1f}", f"{cpu:.1f}", f"{max(map(seconds, mine)):.1f} s")
    return table


def efficiency(rows: Iterable[Row], processes: int) -> tuple[float, float]:
    """Return the wall seconds from the first start to the last finish, and the share in which the processes
    ran tasks.
    """
    rows = list(rows)
    first, last = min(row["started_at"] for row in rows), max(row["finished_at"] for row in rows)
    wall = (last - first).total_seconds()
    return wall, sum(map(seconds, rows)) / (processes * wall)
