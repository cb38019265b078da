"""The programs that take tasks from queues in Redis and leave results there."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.broker import PARTITIONS, ROOT
from benchmarks.contest import CELERY, DRAMATIQ, TRIPS_SECONDS, Flow, Load, Timed, Work, watch
from benchmarks.figures import Span
from benchmarks.programs import PROCESSES, Program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from benchmarks.bench import Bench
    from benchmarks.environments import Environments
    from benchmarks.redis_server import RedisServer

PREFETCH = {True: 100, False: 1}  # by whether tasks are short: per process
_CLIENT_SECONDS = 300.0
_TRIPS_TO_WAKE = 10


class QueueProgram(NamedTuple):
    """``command``: of its workers. ``open``: how many tasks are not acknowledged yet."""

    name: str
    module: str
    python: Callable[[], Path]
    command: Callable[[Path], list[str]]
    open: Callable[[RedisServer], int]
    results: Callable[[RedisServer], Iterable[bytes]]
    at_most: int

    def flow(self, bench: Bench, load: Load) -> Flow:
        server, total = self._filled(bench, "nothing", [load.payload] * min(load.waiting, self.at_most))
        with self._program(server, short=True) as program:
            samples = watch(program, self._settled(server, total), server.cpu_seconds, total)
            pss = program.pss()
        return Flow(samples, total, sum(pss), len(pss))

    def timed(self, bench: Bench, work: Work) -> Timed:
        server, total = self._filled(bench, "spin", work.payloads)
        with self._program(server, short=work.short) as program:
            samples = watch(program, self._settled(server, total), server.cpu_seconds, total)
            server_cpu = samples[-1].broker_cpu - samples[0].broker_cpu
            return Timed(self._spans(server), server_cpu=server_cpu)

    def trips(self, bench: Bench, gaps: Sequence[float]) -> list[float]:
        server = bench.redis
        server.ask("FLUSHALL")
        with self._program(server, short=False):
            given = {"gaps": [0.0] * _TRIPS_TO_WAKE + list(gaps), "seconds": TRIPS_SECONDS}
            times = json.loads(self._client(server, "trips", given))
        return [float(seconds) for seconds in times[_TRIPS_TO_WAKE:]]

    def start(self, bench: Bench) -> float:
        server, total = self._filled(bench, "spin", ["0"] * PARTITIONS)
        with self._program(server, short=False) as program:
            watch(program, self._settled(server, total), server.cpu_seconds, total)
            return min(span.started for span in self._spans(server)) - program.started_at

    def _filled(self, bench: Bench, handler: str, payloads: Sequence[str]) -> tuple[RedisServer, int]:
        """The server with just these tasks in its queue."""
        server = bench.redis
        server.ask("FLUSHALL")
        counted = [(payload, len(list(group))) for payload, group in itertools.groupby(payloads)]
        self._client(server, "fill", {"handler": handler, "payloads": counted})
        if self.open(server) != len(payloads):
            raise RuntimeError(f"{self.open(server)} of {len(payloads)} tasks are in the queue")
        return server, len(payloads)

    def _program(self, server: RedisServer, *, short: bool) -> Program:
        return Program(self.name, [self.command(self.python())], self._variables(server, short=short))

    def _variables(self, server: RedisServer, *, short: bool) -> dict[str, str]:
        prefetch = str(PREFETCH[short])
        more = {"PYTHONPATH": str(ROOT), "BENCH_REDIS": server.url}
        return {**os.environ, **more, "BENCH_PREFETCH": prefetch, "dramatiq_queue_prefetch": prefetch}

    def _client(self, server: RedisServer, action: str, given: object) -> str:
        done = subprocess.run(
            [str(self.python()), "-P", "-m", self.module, action],
            input=json.dumps(given),
            env=self._variables(server, short=False),
            cwd=ROOT,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            timeout=_CLIENT_SECONDS,
        )
        return done.stdout

    def _settled(self, server: RedisServer, total: int) -> Callable[[], int]:
        """Counts what is acknowledged and has its result."""
        return lambda: min(total - self.open(server), server.ask("DBSIZE", database=1))

    def _spans(self, server: RedisServer) -> list[Span]:
        return [Span(*json.loads(result)) for result in self.results(server)]


def celery(environments: Environments, at_most: int) -> QueueProgram:
    """Processes that are forked (its default), one task each."""
    options = ["--pool", "prefork", "--concurrency", str(PROCESSES), "--loglevel", "ERROR"]
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]  # talk among several workers; here is one
    return QueueProgram(
        CELERY,
        "benchmarks.foreign.celery_peer",
        lambda: environments.python("celery"),
        lambda python: (
            [str(python), "-P", "-m", "celery", "-A", "benchmarks.foreign.celery_peer", "worker", *options, *quiet]
        ),
        lambda server: server.ask("LLEN", "celery") + server.ask("HLEN", "unacked"),
        _celery_results,
        at_most,
    )


def _celery_results(server: RedisServer) -> Iterable[bytes]:
    keys = server.ask("KEYS", "celery-task-meta-*", database=1)
    for value in server.ask("MGET", *keys, database=1):
        told = json.loads(value)
        if told["status"] != "SUCCESS":
            raise RuntimeError(f"a task ended with {told['status']}: {told['result']}")
        yield json.dumps(told["result"]).encode()


def dramatiq(environments: Environments, at_most: int) -> QueueProgram:
    """Processes of one thread each, for CPU-bound tasks."""
    options = ["--processes", str(PROCESSES), "--threads", "1"]
    return QueueProgram(
        DRAMATIQ,
        "benchmarks.foreign.dramatiq_peer",
        lambda: environments.python("dramatiq"),
        lambda python: [str(python), "-P", "-m", "dramatiq", "benchmarks.foreign.dramatiq_peer", *options],
        lambda server: server.ask("HLEN", "dramatiq:default.msgs"),
        _dramatiq_results,
        at_most,
    )


def _dramatiq_results(server: RedisServer) -> Iterable[bytes]:
    for key in server.ask("KEYS", "*", database=1):
        yield server.ask("LINDEX", key, "0", database=1)
