"""The programs that take requests from Kafka and answer there."""

from __future__ import annotations

import contextlib
import itertools
import time
from typing import TYPE_CHECKING, NamedTuple

from benchmarks import sockets
from benchmarks.broker import PARTITIONS, ROOT
from benchmarks.contest import ARROYO, BARE, PARALLEL, SIMPLE, TRIPS_SECONDS, WORKER, Flow, Load, Timed, Work, watch
from benchmarks.programs import PROCESSES, Program, environment, peer, worker
from benchmarks.traffic import Place, Reader, Settled, round_trips, span_of, warm_up

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.bench import Bench
    from benchmarks.environments import Environments

_COMMIT_SECONDS = 20.0  # for the last commit after the last answer


class Wish(NamedTuple):
    """What a program is to do: which handler, tasks of which kind, and whether in the order of keys alone."""

    handler: str
    short: bool = True
    by_key: bool = False


class KafkaProgram(NamedTuple):
    """``make`` gives the program for a place. ``at_most``: tasks that it is watched for where a million wait."""

    name: str
    make: Callable[[Place, Wish], Program]
    at_most: int

    def flow(self, bench: Bench, load: Load) -> Flow:
        topic, total = bench.waiting(load), min(load.waiting, self.at_most)
        place = bench.place(topic)
        offsets = bench.broker.records("__consumer_offsets")
        with self.make(place, Wish("nothing")) as program, contextlib.closing(Settled(place)) as settled:
            samples = watch(program, settled.count, bench.broker.cpu_seconds, total)
            pss, received = program.pss(), _received(program, place)
        answers = bench.broker.records(place.ack_topic)
        if answers < total:
            raise RuntimeError(f"{self.name} committed {total} requests but answered {answers}")
        offsets = bench.broker.records("__consumer_offsets") - offsets
        batches = bench.broker.batches(place.ack_topic)
        bench.broker.delete(place.ack_topic)
        # Where more wait than are watched for, what was received is a matter of when the program was stopped.
        share = received / bench.broker.size(topic) if total == load.waiting else 0.0
        return Flow(samples, total, sum(pss), len(pss), 1000 * batches / answers, 1000 * offsets / answers, share)

    def timed(self, bench: Bench, work: Work) -> Timed:
        place = bench.place()
        program, tasks = self.make(place, Wish("spin", work.short, work.by_key)), len(work.lengths)
        reader = Reader(place, program)
        with contextlib.closing(reader), contextlib.closing(Settled(place)) as settled, program:
            warm_up(place, reader)
            cpu, server_cpu, before = program.cpu_seconds(), bench.broker.cpu_seconds(), _received(program, place)
            bench.fill(place.request_topic, work.payloads, work.deal)
            spans = [span_of(answer) for answer in reader.answers(tasks)]
            cpu, server_cpu = program.cpu_seconds() - cpu, bench.broker.cpu_seconds() - server_cpu
            received = _received(program, place) - before
            _await(lambda: settled.count() >= tasks + PARTITIONS, f"the commits of {self.name}")
        bench.broker.delete(place.ack_topic)
        return Timed(spans, cpu, server_cpu, received / bench.broker.size(place.request_topic))

    def trips(self, bench: Bench, gaps: Sequence[float]) -> list[float]:
        place = bench.place()
        program = self.make(place, Wish("nothing", short=False))
        with program, contextlib.closing(Reader(place, program)) as reader:
            warm_up(place, reader)
            deadline = time.monotonic() + TRIPS_SECONDS
            trips = round_trips(place, reader, gaps)
            return list(itertools.takewhile(lambda _: time.monotonic() < deadline, trips))

    def start(self, bench: Bench) -> float:
        place = bench.place()
        bench.fill(place.request_topic, itertools.repeat("0", PARTITIONS))
        program = self.make(place, Wish("spin", short=False))
        with contextlib.closing(Reader(place, program)) as reader, program:
            return min(span_of(answer).started for answer in reader.answers(PARTITIONS)) - program.started_at


def _received(program: Program, place: Place) -> int:
    return sockets.received(program.pids(), int(place.address.rpartition(":")[2]))


def _await(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _COMMIT_SECONDS
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come within {_COMMIT_SECONDS:.0f} s")
        time.sleep(0.05)


def the_worker(at_most: int, name: str = WORKER, handler: str = "", **settings: str) -> KafkaProgram:
    """With default settings but for those given. ``handler``: instead of the one that is wished."""

    def make(place: Place, wish: Wish) -> Program:
        order = {"WORKER_ORDERING": "key"} if wish.by_key else {}
        return worker(place, handler or wish.handler, **order, **settings)

    return KafkaProgram(name, make, at_most)


def bare_loop(at_most: int) -> KafkaProgram:
    """Without a handler: for empty tasks alone."""
    return KafkaProgram(BARE, lambda place, _wish: peer("bare", place), at_most)


def simple_design() -> KafkaProgram:
    """Some tasks a second: never to be watched for many."""
    return KafkaProgram(SIMPLE, lambda place, wish: peer("simple", place, wish.handler), 20)


def arroyo(environments: Environments, at_most: int) -> KafkaProgram:
    """A batch is the unit that goes to a process: one task where they are long, else many."""

    def make(place: Place, wish: Wish) -> Program:
        batch = "1000" if wish.handler == "nothing" and wish.short else "10" if wish.short else "1"
        command = [str(environments.python("arroyo")), "-P", "-m", "benchmarks.foreign.arroyo_peer"]
        variables = environment(place, {"BENCH_HANDLER": wish.handler})
        return Program(ARROYO, [[*command, batch, str(PROCESSES)]], variables)

    return KafkaProgram(ARROYO, make, at_most)


def parallel_consumer(environments: Environments, at_most: int) -> KafkaProgram:
    """A thread waits until its answer is confirmed: many where tasks are short, else one for each core."""

    def make(place: Place, wish: Wish) -> Program:
        java = [str(ROOT / ".runtime/java/bin/java"), "-Xmx512m", "-cp", environments.classpath(), "ParallelPeer"]
        threads = "100" if wish.handler == "nothing" else "16" if wish.short else str(PROCESSES)
        order = "KEY" if wish.by_key else "UNORDERED"
        more = {"BENCH_HANDLER": wish.handler, "BENCH_CONCURRENCY": threads, "BENCH_ORDER": order}
        return Program(PARALLEL, [java], environment(place, more))

    return KafkaProgram(PARALLEL, make, at_most)
