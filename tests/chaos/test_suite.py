"""The machinery of the suite: parallel jobs, faults of brokers, and lost packets."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from chaos import cluster as clusters
from chaos import groups as group_state
from chaos import network_broker_faults, packet_loss, process_faults, procutil, record, run_lists, suite
from chaos import run as runs
from chaos.__main__ import main
from chaos.faults import BY_NAME
from chaos.options import Options
from chaos.plan import Fault, Plan
from chaos.process_faults import NoTargetError
from chaos.procutil import ROOT
from tests import namespaces

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

_FORK: Any = multiprocessing.get_context("fork")


# -- jobs


def plan(seed: int, brokers: int = 1, seconds: float = 1.0, used: str = "") -> Plan:
    return Plan(Options(seed, brokers=brokers, features=used), [], [], seconds)


def groups(*planned: Plan) -> list[list[int]]:
    """Return the seeds of the plans that use the same brokers, group by group."""
    queue, found = suite.Queue(planned), []
    while (one := queue.take()) is not None:
        found.append([one.options.seed])
        while (following := queue.take(after=one)) is not None:
            found[-1].append(following.options.seed)
            one = following
    return found


def test_no_run_begins_after_the_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []

    def begin(executor: suite.Suite) -> int:
        while executor._queue.take() is not None:
            begun.append(executor._echo._name)
            os.kill(os.getpid(), signal.SIGUSR1)
        return 0

    monkeypatch.setattr(suite.Suite, "run", begin)
    before = signal.getsignal(signal.SIGUSR1)
    try:
        assert suite.run([plan(1), plan(2), plan(3)], None, suite.Ways(small_disks=False)) == 0
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(begun) == 1


def test_plans_that_need_the_same_brokers_are_together_and_the_longest_first() -> None:
    assert groups(plan(1), plan(2, 3, 5.0), plan(3, 1, 9.0), plan(4, 3, 7.0)) == [[4, 2], [3, 1]]


def test_a_plan_with_private_brokers_shares_them_with_none() -> None:
    upgrades = [plan(seed, 3, 9.0, "upgrade") for seed in (3, 4)]
    assert groups(plan(1, 3), *upgrades, plan(2, 3), plan(5)) == [[1, 2], [3], [4], [5]]


def test_two_parallel_jobs_run_every_plan_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "record.jsonl"
    file.touch()

    @contextlib.asynccontextmanager
    async def no_brokers(*_: object, **__: object) -> AsyncIterator[object]:
        yield object()

    async def raises(one: Plan, *_: object) -> None:
        await asyncio.sleep(0.3)
        raise TimeoutError(f"process {os.getpid()}")

    monkeypatch.setattr(clusters, "running", no_brokers)
    monkeypatch.setattr(runs, "execute", raises)
    monkeypatch.setattr(record, "FILE", file)
    monkeypatch.setattr(suite, "write_documents", lambda: None)
    planned = [plan(seed) for seed in range(6)]
    assert _in_a_child(lambda: suite.run(planned, {"engine": "abc"}, suite.Ways(small_disks=False, jobs=2))) == 1
    lines = record.runs(record.load(file))
    assert sorted(one["seed"] for one in lines) == list(range(6))
    assert len({text for one in lines for text in one["violations"]}) == 2  # one per process


def _in_a_child(function: Callable[[], int]) -> int:
    """Run a function in a separate process, because it handles signals and enters namespaces. Return the exit code."""
    child = _FORK.Process(target=lambda: sys.exit(function()))
    child.start()
    child.join(60)
    code: int = child.exitcode
    return code


def test_several_forms_are_all_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Until 2026-11-24 only the first form ran."""
    with pytest.raises(SystemExit):
        main(["--long", "--features", "--part", "9999"])
    both = len(run_lists.LONG) + len(run_lists.FEATURES)
    assert f"there are the runs 1 to {both}" in capsys.readouterr().err


def test_a_run_whose_faults_are_not_available_is_not_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such a run would count as broken, or as a run that passed without any fault."""
    executed: list[int] = []

    def execute(planned: Sequence[Plan], *_: object) -> int:
        executed.extend(one.options.seed for one in planned)
        return 0

    monkeypatch.setattr(procutil, "private_machine", frozenset)
    monkeypatch.setattr(suite, "run", execute)
    parts = [n + 1 for n, one in enumerate(run_lists.LONG) if one.seed in (320, 321, 166)]
    with pytest.raises(SystemExit) as end:
        main(["--long", *(text for part in parts for text in ("--part", str(part)))])
    assert end.value.code == 0
    assert executed == [166]
    assert capsys.readouterr().err.count("not run, because none of its faults is available: ") == 2
    with pytest.raises(SystemExit) as end:
        main(["--mix", "loss"])
    assert end.value.code == 1
    assert "no run is possible" in capsys.readouterr().err


def test_the_soak_takes_the_options_of_the_command_line() -> None:
    command = [sys.executable, "-m", "chaos", "--soak", "--minutes", "0.2", "--guarantee", "at-most-once", "--plan"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)  # the suite enters namespaces
    title = done.stdout.splitlines()[0]
    assert title.startswith("at-most-once, partition, consumer, 3 broker(s), all, soak")


def test_no_port_is_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two brokers of a cluster got the same port, because neither listened yet."""
    monkeypatch.setattr(random, "sample", lambda population, _count: list(population))
    ports = [port for _ in range(3) for port in procutil.free_ports(4)]
    assert len(set(ports)) == 12


def _a_test_that_enters_namespaces() -> int:
    with pytest.raises(pytest.fail.Exception, match="use a child process"), namespaces.kept():
        procutil.private_machine()
    return 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_test_that_leaves_its_namespaces_fails() -> None:
    """Until 2026-11-24 a test did so. All later tests of its process found no broker, although the broker ran."""
    assert _in_a_child(_a_test_that_enters_namespaces) == 0


# -- brokers of the old version


class OldNode:
    def __init__(self) -> None:
        self.upgraded = False

    def upgrade(self) -> None:
        self.upgraded = True


def test_brokers_are_upgraded_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    restarted: list[int] = []

    async def restart(_: object, fault: Fault) -> None:
        assert nodes[fault.broker].upgraded
        restarted.append(fault.broker)

    nodes = [OldNode(), OldNode(), OldNode()]
    context: Any = SimpleNamespace(cluster=SimpleNamespace(nodes=nodes))
    monkeypatch.setattr(network_broker_faults, "broker_restart", restart)

    def upgrade() -> None:
        fault = Fault(0, 0.0, BY_NAME["broker-upgrade"], 0, 0, 1, 0.5)
        asyncio.run(network_broker_faults.broker_upgrade(context, fault))

    for _ in nodes:
        upgrade()
    assert restarted == [1, 2, 0]
    with pytest.raises(NoTargetError):
        upgrade()


def test_a_broker_is_not_frozen_while_it_loads_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise Kafka 4.3.0 may forget the session time-outs of the group."""
    happened: list[str] = []

    def committed(*_: object) -> dict[int, int]:
        happened.append("asked")
        if len(happened) < 3:
            raise KafkaException(KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS))
        return {}

    monkeypatch.setattr(group_state, "committed", committed)
    monkeypatch.setattr(network_broker_faults, "_LOAD_SECONDS", 0.01)
    node = SimpleNamespace(signal=lambda number: happened.append(signal.Signals(number).name))
    context: Any = SimpleNamespace(
        cluster=SimpleNamespace(nodes=[node], bootstrap=""),
        replicas=SimpleNamespace(group=""),
        topics=SimpleNamespace(requests=""),
    )
    asyncio.run(network_broker_faults.broker_freeze(context, Fault(0, 0.0, BY_NAME["broker-freeze"], 0, 0, 1, 0.01)))
    assert happened == ["asked", "asked", "asked", "SIGSTOP", "SIGCONT"]


@pytest.mark.parametrize("ended", [False, True])
def test_a_duplicate_starts_when_the_replica_has_its_name(tmp_path: Path, *, ended: bool) -> None:
    """Before that, the duplicate may get the name, and the replica is refused."""
    log, started = tmp_path / "r0.log", []
    log.touch()

    class Running:
        polls = 0

        @property
        def running(self) -> bool:
            self.polls += 1
            if self.polls == 3 and not ended:
                log.write_text('{"event": "supervisor.started"}\n')
            return not (ended and self.polls > 3)

    replica: Any = Running()
    replica.log, replica.lock, replica.name = log, asyncio.Lock(), "r0"

    def start(*_: object, **__: object) -> Any:
        started.append(log.read_text())
        refused = SimpleNamespace(poll=lambda: 2)
        return SimpleNamespace(running=False, process=refused)

    replicas = SimpleNamespace(
        options=SimpleNamespace(replicas=1), members={0: replica}, start=start, kill=lambda _: None, failed=[]
    )
    context: Any = SimpleNamespace(replicas=replicas)
    fault = Fault(0, 0.0, BY_NAME["duplicate-replica"], 0, 0, 0, 0.5)
    with pytest.raises(NoTargetError) if ended else contextlib.nullcontext():
        asyncio.run(process_faults.duplicate_replica(context, fault))
    assert (len(started), replicas.failed) == (0 if ended else 1, [])
    assert all(started), "it has logged that it supervises"


def test_at_most_once_no_record_is_deleted_because_a_request_may_be_given_back() -> None:
    context: Any = SimpleNamespace(replicas=SimpleNamespace(options=SimpleNamespace(guarantee="at-most-once")))
    with pytest.raises(NoTargetError):
        asyncio.run(network_broker_faults.delete_records(context, Fault(0, 0.0, BY_NAME["delete-records"], 0, 0, 1, 0)))


# -- packets


def _packets_are_lost() -> int:
    """Connect over a link, lose packets, and measure how long one byte takes. Return the exit code."""
    if "packets" not in procutil.private_machine():
        return 77
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        other, _ = server.accept()
        port = server.getsockname()[1]
        packet_loss.start_loss([port], 1.0)
        client.send(b"a")
        other.settimeout(0.7)
        with contextlib.suppress(TimeoutError):
            return 1 if other.recv(1) else 2
        packet_loss.stop_loss([port], 1.0)
        other.settimeout(10)
        return 0 if other.recv(1) == b"a" else 3  # the kernel has sent it again


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("iptables"), reason="needs root and iptables")
def test_dropped_packets_are_sent_again_over_the_open_connection() -> None:
    assert _in_a_child(_packets_are_lost) == 0


def _some_packets_are_lost() -> int:
    if "packets" not in procutil.private_machine():
        return 77
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        other, _ = server.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        packet_loss.start_loss([server.getsockname()[1]], 0.2)
        slow = 0
        for _ in range(60):
            began = time.monotonic()
            client.send(b"a")
            other.recv(1)
            slow += time.monotonic() - began > 0.1
        counters = subprocess.run(["iptables", "-L", "-v", "-n", "-x"], capture_output=True, text=True, check=True)
        packet_loss.stop_loss([server.getsockname()[1]], 0.2)
        print(slow, counters.stdout)  # noqa: T201 - shown if it fails
        return 0 if 1 <= slow <= 40 else 1


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("iptables"), reason="needs root and iptables")
def test_one_packet_in_five_is_lost() -> None:
    assert _in_a_child(_some_packets_are_lost) == 0
