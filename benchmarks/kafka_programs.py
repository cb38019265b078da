"""The programs that receive requests from Kafka and send answers to it."""

from __future__ import annotations

import contextlib
import itertools
import time
from typing import TYPE_CHECKING, NamedTuple

from benchmarks import sockets
from benchmarks.broker import PARTITIONS, ROOT
from benchmarks.comparison import ROUND_TRIP_SECONDS, watch
from benchmarks.endpoint import spread
from benchmarks.names import ARROYO, BARE, DETACHING, PARALLEL, SHARE_GROUP, WORKER
from benchmarks.processes import PROCESSES, ProcessGroup, environment, worker
from benchmarks.processes import bare_loop as bare_processes
from benchmarks.runs import BacklogRun, TaskRun
from benchmarks.traffic import Answered, Counter, Reader, Settled, round_trips, span_of, warm_up

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.bench import Bench
    from benchmarks.broker import Broker
    from benchmarks.endpoint import Endpoint
    from benchmarks.environments import Environments
    from benchmarks.runs import Load, Work

MANY_PARTITIONS = 16
DETACHING_SETTINGS = {"WORKER_ORDERING": "unordered", "WORKER_LONG_AFTER": "1s"}
_COMMIT_SECONDS = 20.0  # for the last commit after the last answer


class Spec(NamedTuple):
    """The properties of the work, by which a program may choose its settings.

    ``short`` means that the tasks are short, and ``by_key`` that only the order of keys matters. With ``idle``, there
    is one task at a time, and latency counts instead of throughput.
    """

    handler: str
    short: bool = True
    by_key: bool = False
    idle: bool = False
    processes: int = PROCESSES


class KafkaProgram(NamedTuple):
    """A Kafka program. ``make`` creates its processes. ``at_most`` is how many of the waiting tasks are watched.

    ``partitions`` belong to the request topic of tasks of given lengths. ``settles`` counts settled requests.
    """

    name: str
    make: Callable[[Endpoint, Spec], ProcessGroup]
    at_most: int
    partitions: int = PARTITIONS
    settles: Callable[[Broker, Endpoint], Counter] = lambda _broker, endpoint: Settled(endpoint)

    def drain_backlog(self, bench: Bench, load: Load) -> BacklogRun:
        topic, total = bench.waiting(load), min(load.waiting, self.at_most)
        endpoint = bench.endpoint(topic)
        offsets = bench.broker.records("__consumer_offsets")
        with contextlib.closing(self.settles(bench.broker, endpoint)) as settled:
            with self.make(endpoint, Spec("nothing")) as program:
                samples = watch(program, settled.count, bench.broker.cpu_seconds, total)
                pss, received = program.pss(), _received(program, endpoint)
            count = settled.count()  # at-most-once commits in advance, and takes back at the stop what has not started
        answers = bench.broker.records(endpoint.ack_topic)
        if answers < count:
            raise RuntimeError(f"{self.name} committed {count} requests but answered {answers}")
        offsets = bench.broker.records("__consumer_offsets") - offsets
        batches = bench.broker.batches(endpoint.ack_topic)
        bench.broker.delete(endpoint.ack_topic)
        # If requests are left, the bytes depend on when the program was stopped.
        share = received / bench.broker.size(topic) if total == load.waiting else 0.0
        return BacklogRun(samples, total, sum(pss), len(pss), 1000 * batches / answers, 1000 * offsets / answers, share)

    def run_tasks(self, bench: Bench, work: Work) -> TaskRun:
        endpoint = bench.endpoint(partitions=self.partitions)
        program, tasks = self._program(endpoint, work), len(work.lengths)
        reader = Reader(endpoint, program)
        with contextlib.closing(reader), contextlib.closing(self.settles(bench.broker, endpoint)) as settled, program:
            warm_up(endpoint, reader)
            cpu, server_cpu, before = program.cpu_seconds(), bench.broker.cpu_seconds(), _received(program, endpoint)
            bench.fill(endpoint.request_topic, work.payloads, work.partitioner or spread(self.partitions))
            spans = [span_of(answer) for answer in reader.answers(tasks)]
            cpu, server_cpu = program.cpu_seconds() - cpu, bench.broker.cpu_seconds() - server_cpu
            received = _received(program, endpoint) - before
            _await(lambda: settled.count() >= tasks + self.partitions, f"the commits of {self.name}")
        bench.broker.delete(endpoint.ack_topic)
        return TaskRun(spans, cpu, server_cpu, received / bench.broker.size(endpoint.request_topic))

    def _program(self, endpoint: Endpoint, work: Work) -> ProcessGroup:
        return self.make(endpoint, Spec(work.handler, work.short, work.by_key, processes=work.processes))

    def round_trips(self, bench: Bench, gaps: Sequence[float]) -> list[float]:
        endpoint = bench.endpoint()
        program = self.make(endpoint, Spec("nothing", short=False, idle=True))
        with program, contextlib.closing(Reader(endpoint, program)) as reader:
            producer = warm_up(endpoint, reader)
            deadline = time.monotonic() + ROUND_TRIP_SECONDS
            trips = round_trips(endpoint, reader, producer, gaps)
            return list(itertools.takewhile(lambda _: time.monotonic() < deadline, trips))

    def start(self, bench: Bench) -> float:
        endpoint = bench.endpoint()
        bench.fill(endpoint.request_topic, itertools.repeat("0", PARTITIONS))
        program = self.make(endpoint, Spec("spin", short=False))
        with contextlib.closing(Reader(endpoint, program)) as reader, program:
            return min(span_of(answer).started for answer in reader.answers(PARTITIONS)) - program.started_at


def _received(program: ProcessGroup, endpoint: Endpoint) -> int:
    return sockets.received(program.pids(), int(endpoint.address.rpartition(":")[2]))


def _await(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _COMMIT_SECONDS
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come within {_COMMIT_SECONDS:.0f} s")
        time.sleep(0.05)


def detaching(bench: Bench, name: str = DETACHING, **settings: str) -> KafkaProgram:
    """Return the worker for unordered tasks of unknown length: many partitions, and long tasks are detached."""

    def make(endpoint: Endpoint, spec: Spec) -> ProcessGroup:
        common = {"KAFKA_STATE_TOPIC": bench.state_topic(), "WORKER_PROCESSES": str(spec.processes)}
        return worker(endpoint, spec.handler, **common, **{**DETACHING_SETTINGS, **settings})

    return KafkaProgram(name, make, 0, MANY_PARTITIONS)


def the_worker(at_most: int, name: str = WORKER, handler: str = "", **settings: str) -> KafkaProgram:
    """Return the worker with default settings, except for those given. ``handler`` replaces that of the spec."""

    def make(endpoint: Endpoint, spec: Spec) -> ProcessGroup:
        order = {"WORKER_ORDERING": "key"} if spec.by_key else {}
        return worker(
            endpoint, handler or spec.handler, **{"WORKER_PROCESSES": str(spec.processes), **order, **settings}
        )

    return KafkaProgram(name, make, at_most)


def bare_loop(at_most: int) -> KafkaProgram:
    """Return the bare loop. It has no handler, so it only runs empty tasks."""
    return KafkaProgram(BARE, lambda endpoint, _spec: bare_processes(endpoint), at_most)


def arroyo(environments: Environments, at_most: int) -> KafkaProgram:
    """Return arroyo with batches of one long task or of many other tasks, because a process gets a whole batch.

    A batch waits 1 s to be full, as in the documentation, or 10 ms if latency is measured.
    """

    def make(endpoint: Endpoint, spec: Spec) -> ProcessGroup:
        batch = "1000" if spec.handler == "nothing" and spec.short else "10" if spec.short else "1"
        command = [str(environments.python("arroyo")), "-P", "-m", "benchmarks.foreign.arroyo_peer"]
        variables = environment(endpoint, {"BENCH_HANDLER": spec.handler})
        return ProcessGroup(ARROYO, [[*command, batch, "0.01" if spec.idle else "1", str(spec.processes)]], variables)

    return KafkaProgram(ARROYO, make, at_most)


def parallel_consumer(environments: Environments, at_most: int, threads: int = 0, commit_ms: int = 100) -> KafkaProgram:
    """Return parallel-consumer with a concurrency of ``threads``.

    A thread waits until its answer is confirmed, so short tasks need many threads. The default is 100 for empty tasks,
    16 (the documented default) for short ones, and one per process otherwise.
    """

    def make(endpoint: Endpoint, spec: Spec) -> ProcessGroup:
        java = [str(ROOT / ".runtime/java/bin/java"), "-Xmx512m", "-cp", environments.classpath(), "ParallelPeer"]
        usual = 100 if spec.handler == "nothing" else 16 if spec.short else spec.processes
        more = {
            "BENCH_HANDLER": spec.handler,
            "BENCH_CONCURRENCY": str(threads or usual),
            "BENCH_ORDER": "KEY" if spec.by_key else "UNORDERED",
            "BENCH_COMMIT_MS": str(commit_ms),
        }
        return ProcessGroup(PARALLEL, [java], environment(endpoint, more))

    name = f"{PARALLEL}, {threads} threads, commits every {commit_ms} ms" if threads else PARALLEL
    return KafkaProgram(name, make, at_most)


def share_group(environments: Environments, at_most: int) -> KafkaProgram:
    """Return Kafka's share consumers, one thread each. Records are not bound to partitions and wait for no owner.

    Empty tasks come in the client's default batches. A consumer takes ten short tasks or one long task at a time.
    """

    def make(endpoint: Endpoint, spec: Spec) -> ProcessGroup:
        java = [str(ROOT / ".runtime/java/bin/java"), "-Xmx512m", "-cp", environments.share_classpath(), "SharePeer"]
        empty = spec.handler == "nothing" and spec.short
        more = {
            "BENCH_HANDLER": spec.handler,
            "BENCH_CONCURRENCY": str(spec.processes),
            "BENCH_RECORDS": "500" if empty else "10" if spec.short else "1",
            "BENCH_ACQUIRE": "batch_optimized" if empty else "record_limit",
        }
        return ProcessGroup(SHARE_GROUP, [java], environment(endpoint, more))

    return KafkaProgram(SHARE_GROUP, make, at_most, settles=Answered)
