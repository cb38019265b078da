"""What every program under comparison can be asked for, and the results. See kafka_programs and queue_programs."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from benchmarks.figures import TIMES, Figure, Sample, Span, ratios, steady
from benchmarks.traffic import in_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.bench import Bench
    from benchmarks.programs import Program
    from benchmarks.traffic import Deal

T = TypeVar("T")
WORKER = "worker"
BARE, SIMPLE, ARROYO, PARALLEL, CELERY, DRAMATIQ = PROGRAMS_BESIDE = (
    "bare loop",
    "simple design",
    "arroyo",
    "parallel-consumer",
    "Celery",
    "Dramatiq",
)
PROGRAMS = (WORKER, *PROGRAMS_BESIDE)
# Units that tables and plots look for.
SHARE = f"CPU seconds asked for ÷ (processes {TIMES} time)"
BOUND = "makespan ÷ lower bound"
RECEIVED = "bytes received ÷ bytes of requests"
LIMIT = 180.0  # seconds for one run
TRIPS_SECONDS = 20.0  # at most, of round trips: some programs take seconds for one
_SAMPLE_SECONDS = 0.05
_MICRO, _MEGA = 1e6, 1e6


class Load(NamedTuple):
    """Empty tasks that wait before a program starts: so many requests with this payload."""

    payload: str
    waiting: int


class Flow(NamedTuple):
    """A program among empty tasks. What only Kafka's clients have is 0 for others."""

    samples: list[Sample]
    total: int  # tasks it was watched for
    pss: int  # bytes, of all its processes, while it ran
    processes: int
    batches: float = 0.0  # record batches written, per 1000 answers
    commits: float = 0.0  # offsets committed, per 1000 answers
    received: float = 0.0  # bytes from the broker ÷ bytes of the requests settled


class Timed(NamedTuple):
    """Tasks of given lengths, as their answers tell."""

    spans: list[Span]
    cpu: float = 0.0  # seconds that all processes of the program used meanwhile, 0 if unknown
    server_cpu: float = 0.0  # seconds that the broker, or Redis, used meanwhile
    received: float = 0.0  # as in ``Flow``

    @property
    def makespan(self) -> float:
        """Seconds from the first start to the last finish."""
        return max(span.finished for span in self.spans) - min(span.started for span in self.spans)


@dataclass(frozen=True, slots=True)
class Work:
    """Tasks of given lengths. ``short``: which of its settings a program takes. ``bulk``: more bytes for each."""

    lengths: Sequence[float]
    short: bool
    deal: Deal = in_turn
    by_key: bool = False
    bulk: int = 0

    @property
    def payloads(self) -> list[str]:
        """Read as a number, blanks around it do not matter."""
        return [f"{length:g}".ljust(self.bulk) for length in self.lengths]


class Contestant(Protocol):
    """A program with its settings. Each call starts it anew, in a place of its own, and leaves nothing running."""

    @property
    def name(self) -> str: ...

    def flow(self, bench: Bench, load: Load) -> Flow:
        """Let it work on what waits, and watch."""

    def timed(self, bench: Bench, work: Work) -> Timed:
        """Give it tasks when it is awake, and wait for all answers and commits."""

    def trips(self, bench: Bench, gaps: Sequence[float]) -> list[float]:
        """One empty task at a time, each after its gap: seconds from sending it to having its answer.

        As many as there are gaps, or as go into ``TRIPS_SECONDS``.
        """

    def start(self, bench: Bench) -> float:
        """Seconds from the start of its process to the start of its first task, with tasks waiting."""


def watch(program: Program, settled: Callable[[], int], server_cpu: Callable[[], float], total: int) -> list[Sample]:
    """Look at a running program until so many tasks are settled. TimeoutError if that takes too long."""
    deadline = time.monotonic() + LIMIT
    samples = [Sample(time.perf_counter(), 0, program.cpu_seconds(), server_cpu())]
    while samples[-1].answers < total:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{samples[-1].answers} of {total} tasks settled in {LIMIT:.0f} s")
        time.sleep(_SAMPLE_SECONDS)
        program.check()
        count = settled()
        samples.append(Sample(time.perf_counter(), count, program.cpu_seconds(), server_cpu()))
    return samples


def in_turns(
    bench: Bench, workload: str, contestants: Sequence[Contestant], repetitions: int, measure: Callable[[Contestant], T]
) -> dict[str, list[T]]:
    """Repetition by repetition, one program after the other. One that fails is told of, and left out from then on."""
    found: dict[str, list[T]] = {}
    failed: set[str] = set()
    for repetition, contestant in itertools.product(range(repetitions), contestants):
        name = contestant.name
        if name in failed:
            continue
        begin, others = time.monotonic(), bench.others()
        try:
            result = measure(contestant)
        except Exception as error:  # noqa: BLE001 - whatever it is, the others may work
            failed.add(name)
            bench.trouble(workload, name, error)
        else:
            found.setdefault(name, []).append(result)
            cores = (bench.others() - others) / (time.monotonic() - begin)
            bench.say(
                f"{workload} {repetition + 1}/{repetitions}: {name}{_told(result)}; others took {cores:.2f} cores"
            )
    return found


def _told(result: object) -> str:
    """A result in few words."""
    match result:
        case Flow() if len(result.samples) > 1:
            last = result.samples[-1]
            return f", {last.answers:,} in {last.at - result.samples[0].at:.1f} s, its start included"
        case Timed():
            return f", {result.makespan:.2f} s"
        case float():
            return f", {result:.2f} s"
        case _:
            return ""


def flow_figures(workload: str, quantity: str, runs: dict[str, list[Flow]]) -> list[Figure]:
    """A figure for each program and column."""
    found = []
    for name, flows in runs.items():
        middles = [steady(flow.samples, flow.total) for flow in flows]
        columns = {
            "tasks/s": [middle.per_second for middle in middles],
            "CPU µs/task": [middle.cpu_per_answer * _MICRO for middle in middles],
            "server's CPU µs/task": [middle.broker_cpu_per_answer * _MICRO for middle in middles],
            "MB PSS, all processes": [flow.pss / _MEGA for flow in flows],
            "processes": [float(flow.processes) for flow in flows],
            "batches/1000 tasks": [flow.batches for flow in flows],
            "offsets/1000 tasks": [flow.commits for flow in flows],
            RECEIVED: [flow.received for flow in flows],
        }
        found += [
            Figure(workload, quantity, name, unit, tuple(values)) for unit, values in columns.items() if any(values)
        ]
    return found


def rates(flows: Sequence[Flow]) -> list[float]:
    """Tasks per second of the middle of each run."""
    return [steady(flow.samples, flow.total).per_second for flow in flows]


def versus(workload: str, quantity: str, values: Mapping[str, Sequence[float]], goals: dict[str, str]) -> list[Figure]:
    """The worker ÷ each of the others, run by run. ``goals``: by the other's name, where the design sets a number."""
    ours = values.get(WORKER, ())
    return [
        Figure(workload, quantity, f"{WORKER} ÷ {name}", TIMES, ratios(ours, theirs), goals.get(name, ""))
        for name, theirs in values.items()
        if name != WORKER and ours
    ]
