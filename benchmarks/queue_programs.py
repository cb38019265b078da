"""The programs that receive tasks from queues and leave results in Redis."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.broker import PARTITIONS, ROOT
from benchmarks.comparison import ROUND_TRIP_SECONDS, watch
from benchmarks.figures import Span
from benchmarks.names import CELERY, CELERY_RABBIT, DRAMATIQ, DRAMATIQ_ONE
from benchmarks.processes import PROCESSES, ProcessGroup
from benchmarks.runs import BacklogRun, TaskRun, run_lengths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from benchmarks.bench import Bench
    from benchmarks.environments import Environments
    from benchmarks.redis_server import RedisServer
    from benchmarks.runs import Load, Work

_CLIENT_SECONDS = 300.0
_WARM_UP_TRIPS = 10


class QueueProgram(NamedTuple):
    """A queue program. ``command`` starts its processes. ``prefetch`` has its variables, by whether tasks are short.

    ``open`` returns how many tasks are unacknowledged. With ``rabbit``, tasks are in RabbitMQ and results in Redis.
    RabbitMQ has no cheap count of unacknowledged tasks, so only the results count.
    """

    name: str
    module: str
    python: Callable[[], Path]
    command: Callable[[Path, int], list[str]]
    prefetch: Callable[[bool], dict[str, str]]
    open: Callable[[RedisServer], int]
    results: Callable[[RedisServer], Iterable[bytes]]
    at_most: int
    rabbit: bool = False

    def drain_backlog(self, bench: Bench, load: Load) -> BacklogRun:
        server, total = self._filled(bench, "nothing", [load.payload] * min(load.waiting, self.at_most))
        with self._program(bench, short=True) as program:
            samples = watch(program, self._settled(server, total), self._cpu(bench), total)
            pss = program.pss()
        return BacklogRun(samples, total, sum(pss), len(pss))

    def run_tasks(self, bench: Bench, work: Work) -> TaskRun:
        server, total = self._filled(bench, work.handler, work.payloads)
        with self._program(bench, short=work.short, processes=work.processes) as program:
            samples = watch(program, self._settled(server, total), self._cpu(bench), total)
            server_cpu = samples[-1].broker_cpu - samples[0].broker_cpu
            return TaskRun(self._spans(server), server_cpu=server_cpu)

    def round_trips(self, bench: Bench, gaps: Sequence[float]) -> list[float]:
        server = bench.redis
        server.command("FLUSHALL")
        with self._program(bench, short=False):
            given = {"gaps": [0.0] * _WARM_UP_TRIPS + list(gaps), "seconds": ROUND_TRIP_SECONDS}
            times = json.loads(self._client(bench, "round-trips", given))
        return [float(seconds) for seconds in times[_WARM_UP_TRIPS:]]

    def start(self, bench: Bench) -> float:
        server, total = self._filled(bench, "spin", ["0"] * PARTITIONS)
        with self._program(bench, short=False) as program:
            watch(program, self._settled(server, total), self._cpu(bench), total)
            return min(span.started for span in self._spans(server)) - program.started_at

    def _filled(self, bench: Bench, handler: str, payloads: Sequence[str]) -> tuple[RedisServer, int]:
        """Return the server with exactly these tasks in its queue, and their number."""
        server = bench.redis
        server.command("FLUSHALL")
        self._client(bench, "fill", {"handler": handler, "payloads": run_lengths(payloads)})
        if not self.rabbit and self.open(server) != len(payloads):
            raise RuntimeError(f"{self.open(server)} of {len(payloads)} tasks are in the queue")
        return server, len(payloads)

    def _program(self, bench: Bench, *, short: bool, processes: int = PROCESSES) -> ProcessGroup:
        return ProcessGroup(self.name, [self.command(self.python(), processes)], self._variables(bench, short=short))

    def _variables(self, bench: Bench, *, short: bool) -> dict[str, str]:
        more = {"PYTHONPATH": str(ROOT), "BENCH_REDIS": bench.redis.url}
        if self.rabbit:
            more["BENCH_RABBIT"] = bench.rabbit.url
        return {**os.environ, **more, **self.prefetch(short)}

    def _cpu(self, bench: Bench) -> Callable[[], float]:
        """Return a function for the CPU seconds of its servers so far."""
        return lambda: bench.redis.cpu_seconds() + (bench.rabbit.cpu_seconds() if self.rabbit else 0.0)

    def _client(self, bench: Bench, action: str, given: object) -> str:
        done = subprocess.run(
            [str(self.python()), "-P", "-m", self.module, action],
            input=json.dumps(given),
            env=self._variables(bench, short=False),
            cwd=ROOT,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            timeout=_CLIENT_SECONDS,
        )
        return done.stdout

    def _settled(self, server: RedisServer, total: int) -> Callable[[], int]:
        """Return a function that counts the tasks that are acknowledged and have a result."""
        return lambda: min(total - self.open(server), server.command("DBSIZE", database=1))

    def _spans(self, server: RedisServer) -> list[Span]:
        return [Span(*json.loads(result)) for result in self.results(server)]


def celery(environments: Environments, at_most: int, *, rabbit: bool = False) -> QueueProgram:
    """Return Celery with forked processes (the default pool), one task each.

    The documentation recommends late acknowledgement with a prefetch of 1 for long tasks, and 50 to 150 for short ones.
    """
    return QueueProgram(
        CELERY_RABBIT if rabbit else CELERY,
        "benchmarks.foreign.celery_peer",
        lambda: environments.python("celery"),
        _celery_command,
        lambda short: {"BENCH_PREFETCH": "100" if short else "1"},
        (lambda _: 0) if rabbit else _celery_open,
        _celery_results,
        at_most,
        rabbit,
    )


def celery_with_limit(environments: Environments, seconds: float) -> QueueProgram:
    """Return Celery with one process, which is killed and replaced after ``seconds``. A killed task has no span."""
    return celery(environments, 0)._replace(
        command=lambda python, _: _celery_command(python, 1, "--time-limit", f"{seconds:g}"),
        results=lambda server: _celery_results(server, ended_by="TimeLimitExceeded"),
    )


def _celery_command(python: Path, processes: int, *more: str) -> list[str]:
    options = ["--pool", "prefork", "--concurrency", str(processes), "--loglevel", "ERROR", *more]
    # There is only one worker.
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    return [str(python), "-P", "-m", "celery", "-A", "benchmarks.foreign.celery_peer", "worker", *options, *quiet]


def _celery_open(server: RedisServer) -> int:
    return int(server.command("LLEN", "celery") + server.command("HLEN", "unacked"))


def _celery_results(server: RedisServer, ended_by: str = "") -> Iterable[bytes]:
    """Return the reports of all tasks, except for those that this kind of exception ended."""
    keys = server.command("KEYS", "celery-task-meta-*", database=1)
    for value in server.command("MGET", *keys, database=1):
        report = json.loads(value)
        if report["status"] == "SUCCESS":
            yield json.dumps(report["result"]).encode()
        elif report["result"]["exc_type"] != ended_by:
            raise RuntimeError(f"a task ended with {report['status']}: {report['result']}")


def dramatiq(environments: Environments, at_most: int, prefetch: int = 0) -> QueueProgram:
    """Return Dramatiq with one thread per process, for CPU-bound tasks. ``prefetch`` replaces its default of two."""

    def command(python: Path, processes: int) -> list[str]:
        options = ["--processes", str(processes), "--threads", "1"]
        return [str(python), "-P", "-m", "dramatiq", "benchmarks.foreign.dramatiq_peer", *options]

    return QueueProgram(
        DRAMATIQ_ONE if prefetch == 1 else DRAMATIQ,
        "benchmarks.foreign.dramatiq_peer",
        lambda: environments.python("dramatiq"),
        command,
        lambda _short: {"dramatiq_queue_prefetch": str(prefetch)} if prefetch else {},
        lambda server: server.command("HLEN", "dramatiq:default.msgs"),
        _dramatiq_results,
        at_most,
    )


def _dramatiq_results(server: RedisServer) -> Iterable[bytes]:
    for key in server.command("KEYS", "*", database=1):
        yield server.command("LINDEX", key, "0", database=1)
