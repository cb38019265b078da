"""What the demo shows in the end: the best models, who did how much, and how busy the CPUs were."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rich.text import Text

from worker.cli.console import columns
from worker.codec import OK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.table import Table

    from worker.codec import Response

BEST = 3  # models shown of each data set


def best_models(answers: Iterable[Response]) -> Table:
    """The models with the best mean scores, by data set."""
    table = columns("data set", "model", "parameters", "score", "±", "seconds")
    results: list[dict[str, Any]] = [json.loads(answer.result) for answer in answers if answer.outcome == OK]
    for dataset in sorted({result["dataset"] for result in results}):
        ranking = sorted((r for r in results if r["dataset"] == dataset), key=lambda r: -r["score_mean"])
        for result in ranking[:BEST]:
            params = ", ".join(f"{name}={value}" for name, value in result["params"].items())
            numbers = (f"{result['score_mean']:.4f}", f"{result['score_std']:.4f}", f"{result['fit_seconds']:.2f}")
            table.add_row(*map(Text, (dataset, result["model"], params, *numbers)))
    return table


def seconds(answer: Response) -> float:
    """How long the task ran."""
    return answer.finished_at.ToNanoseconds() / 1e9 - answer.started_at.ToNanoseconds() / 1e9


def work(answers: Iterable[Response]) -> Table:
    """Tasks and time by worker process."""
    table = columns("process", "tasks", "busy seconds", "CPU seconds", "longest task")
    answers = list(answers)
    for worker in sorted({answer.worker for answer in answers}):
        own = [answer for answer in answers if answer.worker == worker]
        busy, cpu = sum(map(seconds, own)), sum(answer.cpu_seconds for answer in own)
        table.add_row(worker, f"{len(own)}", f"{busy:.1f}", f"{cpu:.1f}", f"{max(map(seconds, own)):.1f} s")
    return table


def efficiency(answers: Iterable[Response], processes: int) -> tuple[float, float]:
    """Wall seconds from the first start to the last finish, and the share of them that the processes ran tasks."""
    answers = list(answers)
    first = min(answer.started_at.ToNanoseconds() for answer in answers)
    last = max(answer.finished_at.ToNanoseconds() for answer in answers)
    wall = (last - first) / 1e9
    return wall, sum(map(seconds, answers)) / (processes * wall)
