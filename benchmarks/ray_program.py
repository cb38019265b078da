"""Ray, whose driver submits the tasks and gets their results itself. Nothing outlives the driver."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import struct
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.broker import PARTITIONS, ROOT
from benchmarks.comparison import ROUND_TRIP_SECONDS, watch
from benchmarks.figures import Span
from benchmarks.names import RAY
from benchmarks.processes import PROCESSES, ProcessGroup
from benchmarks.runs import BacklogRun, TaskRun, run_lengths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.bench import Bench
    from benchmarks.environments import Environments
    from benchmarks.runs import Load, Work

EMPTY, SHORT, LONG = 100, 10, 1  # tasks in one call: the documentation advises to batch short ones
_WARM_UP_TRIPS = 10


class RayProgram(NamedTuple):
    """Ray with one worker process for each task at a time."""

    python: Callable[[], Path]
    at_most: int  # empty tasks

    @property
    def name(self) -> str:
        return RAY

    def drain_backlog(self, bench: Bench, load: Load) -> BacklogRun:  # noqa: ARG002 - it reads no queue of the suite
        total = min(load.waiting, self.at_most)
        with self._running("nothing", [load.payload] * total, batch=EMPTY) as run:
            samples = watch(run.program, run.done, _no_server, total)
            pss = run.program.pss()
        return BacklogRun(samples, total, sum(pss), len(pss))

    def run_tasks(self, bench: Bench, work: Work) -> TaskRun:  # noqa: ARG002
        batch = SHORT if work.short else LONG
        with self._running(work.handler, work.payloads, batch=batch, processes=work.processes) as run:
            watch(run.program, run.done, _no_server, len(work.payloads))
            return TaskRun(run.spans())

    def round_trips(self, bench: Bench, gaps: Sequence[float]) -> list[float]:  # noqa: ARG002
        fitting = list(itertools.takewhile(lambda at: at <= ROUND_TRIP_SECONDS, itertools.accumulate(gaps)))
        wanted = [0.0] * _WARM_UP_TRIPS + list(gaps[: len(fitting)])
        with self._running("nothing", [], gaps=wanted) as run:
            watch(run.program, run.done, _no_server, len(wanted))
            return [float(seconds) for seconds in run.reports()[_WARM_UP_TRIPS:]]

    def start(self, bench: Bench) -> float:  # noqa: ARG002
        with self._running("spin", ["0"] * PARTITIONS) as run:
            watch(run.program, run.done, _no_server, PARTITIONS)
            return min(span.started for span in run.spans()) - run.program.started_at

    @contextlib.contextmanager
    def _running(
        self,
        handler: str,
        payloads: Sequence[str],
        *,
        batch: int = LONG,
        processes: int = PROCESSES,
        gaps: Sequence[float] = (),
    ) -> Iterator[_Run]:
        """Start a driver with these tasks."""
        tasks = {"handler": handler, "payloads": run_lengths(payloads), "batch": batch, "processes": processes}
        with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            (folder / "given").write_text(json.dumps({**tasks, "gaps": list(gaps)}), encoding="utf-8")
            (folder / "done").write_bytes(struct.pack("q", 0))
            command = [str(self.python()), "-P", "-m", "benchmarks.foreign.ray_peer", name]
            variables = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
            with ProcessGroup(RAY, [command], variables) as program:
                yield _Run(program, folder)


class _Run(NamedTuple):
    """A running driver, and the folder that it shares with the suite."""

    program: ProcessGroup
    folder: Path

    def done(self) -> int:
        """Return the number of finished tasks or round trips."""
        (count,) = struct.unpack("q", (self.folder / "done").read_bytes())
        return int(count)

    def reports(self) -> list[Any]:
        """Return what the driver has written at the end."""
        found: list[Any] = json.loads((self.folder / "reports").read_text(encoding="utf-8"))
        return found

    def spans(self) -> list[Span]:
        """Return when and where each task ran."""
        return [Span(*report) for report in self.reports()]


def _no_server() -> float:
    """Return 0: Ray has no server whose CPU time counts apart from its own."""
    return 0.0


def ray(environments: Environments, at_most: int) -> RayProgram:
    """Return Ray."""
    return RayProgram(lambda: environments.python("ray"), at_most)
