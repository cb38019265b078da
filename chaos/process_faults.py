"""The faults of processes and replicas. Each function returns when its fault is over and its target is healthy."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from typing import TYPE_CHECKING, NamedTuple

import psutil
from confluent_kafka import KafkaException

from chaos import log_events
from chaos.clocks import JUMP
from chaos.cluster import until
from chaos.replicas import FAKE_HOST, NO_SETTINGS, SMALL_QUEUE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from chaos.cluster import Cluster
    from chaos.pipeline_jobs import PipelineJobs
    from chaos.plan import Fault
    from chaos.replicas import Replica, Replicas
    from chaos.stores import Store
    from chaos.topics import Topics

ROLLED_SECONDS = 20.0  # seconds for one replica to become ready before the next one stops
CLAIM_SECONDS = 40.0  # seconds to wait for a target
ORPHAN_SECONDS = 15.0  # seconds in which all processes of a killed supervisor must end
REFUSAL_SECONDS = 60.0
REFUSED = 2  # exit code
_FURTHER = 2  # the number of the replica that is added and removed


class RunContext(NamedTuple):
    """The parts of a run that faults affect. A lock is held while a broker or the store has a fault."""

    replicas: Replicas
    cluster: Cluster
    topics: Topics
    broker_lock: asyncio.Lock
    store_lock: asyncio.Lock
    store: Store | None = None
    jobs: PipelineJobs | None = None


class NoTargetError(Exception):
    """The fault found no target in time."""


@contextlib.asynccontextmanager
async def _claimed(context: RunContext, fault: Fault) -> AsyncIterator[tuple[int, Replica]]:
    """Yield the target replica, locked against other faults of replicas. Raise NoTargetError if there is none."""
    number = fault.replica % context.replicas.options.replicas
    deadline = time.monotonic() + CLAIM_SECONDS
    while True:
        replica = context.replicas.members.get(number)
        if replica is not None and replica.running and not replica.lock.locked():
            break
        if time.monotonic() > deadline:
            raise NoTargetError
        await asyncio.sleep(0.1)
    async with replica.lock:
        yield number, replica


async def _worker(context: RunContext, fault: Fault) -> psutil.Process:
    """Return the target worker process. Its replica may have another fault. Raise NoTargetError if there is none."""
    number = fault.replica % context.replicas.options.replicas
    deadline = time.monotonic() + CLAIM_SECONDS
    while time.monotonic() < deadline:
        replica = context.replicas.members.get(number)
        if replica is not None and (workers := replica.workers()):
            return workers[fault.slot % len(workers)]
        await asyncio.sleep(0.1)
    raise NoTargetError


def _send(process: psutil.Process, number: signal.Signals) -> None:
    with contextlib.suppress(psutil.Error):  # it has ended, and another process may have its pid
        process.send_signal(number)


# -- processes


async def kill_process(context: RunContext, fault: Fault) -> None:
    _send(await _worker(context, fault), signal.SIGKILL)


async def kill_child(context: RunContext, fault: Fault) -> None:
    worker = await _worker(context, fault)
    with contextlib.suppress(psutil.Error):
        leaves = [one for one in worker.children(recursive=True) if not one.children()]
        if leaves:
            _send(leaves[fault.number % len(leaves)], signal.SIGKILL)
            return
    raise NoTargetError


async def term_process(context: RunContext, fault: Fault) -> None:
    _send(await _worker(context, fault), signal.SIGTERM)


async def freeze_process(context: RunContext, fault: Fault) -> None:
    await _freeze([await _worker(context, fault)], fault.seconds)


async def _freeze(processes: list[psutil.Process], seconds: float) -> None:
    for process in processes:
        _send(process, signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        for process in processes:
            _send(process, signal.SIGCONT)


# -- replicas


async def freeze_replica(context: RunContext, fault: Fault) -> None:
    async with _claimed(context, fault) as (_, replica):
        await _freeze([psutil.Process(replica.process.pid), *replica.workers()], fault.seconds)


async def freeze_supervisor(context: RunContext, fault: Fault) -> None:
    async with _claimed(context, fault) as (_, replica):
        await _freeze([psutil.Process(replica.process.pid)], fault.seconds)


async def kill_supervisor(context: RunContext, fault: Fault) -> None:
    async with _claimed(context, fault) as (number, replica):
        workers = replica.workers()
        context.replicas.kill(replica)
        try:
            await until(lambda: not any(map(_alive, workers)), "", ORPHAN_SECONDS)
        except TimeoutError:
            left = [worker.pid for worker in workers if _alive(worker)]
            context.replicas.failed.append(f"processes {left} outlive their supervisor {replica.name}")
        await asyncio.sleep(fault.seconds)
        context.replicas.join(number)


def _alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        # A process that was frozen before it subscribed to its parent's death notices the death when it wakes up.
        gone = (psutil.STATUS_ZOMBIE, psutil.STATUS_STOPPED)
        return process.is_running() and process.status() not in gone
    return False


async def clock_forward(context: RunContext, fault: Fault) -> None:
    await _shift(context, fault, JUMP)


async def clock_back(context: RunContext, fault: Fault) -> None:
    await _shift(context, fault, -JUMP)


async def _shift(context: RunContext, fault: Fault, seconds: int) -> None:
    """Shift the clock of a replica, whether it runs, is frozen or starts meanwhile."""
    name, clocks = f"r{fault.replica % context.replicas.options.replicas}", context.replicas.clocks
    clocks.set(name, seconds)
    try:
        await asyncio.sleep(fault.seconds)
    finally:
        clocks.set(name, 0)


async def _replace(
    context: RunContext, fault: Fault, *, twice: bool = False, more: Mapping[str, str] = NO_SETTINGS
) -> None:
    async with _claimed(context, fault) as (number, replica):
        await context.replicas.stop(replica, twice=twice)
        context.replicas.join(number, more)


async def restart(context: RunContext, fault: Fault) -> None:
    await _replace(context, fault)


async def double_sigterm(context: RunContext, fault: Fault) -> None:
    await _replace(context, fault, twice=True)


async def small_queue(context: RunContext, fault: Fault) -> None:
    await _replace(context, fault, more=SMALL_QUEUE)


async def rolling_restart(context: RunContext, fault: Fault) -> None:
    for number in range(context.replicas.options.replicas):
        with contextlib.suppress(NoTargetError, TimeoutError):  # brokers may be down, and the plan continues
            await restart(context, fault._replace(replica=number))
            await context.replicas.wait_ready(ROLLED_SECONDS)


async def rotate_credentials(context: RunContext, fault: Fault) -> None:
    users = context.replicas.users
    if users is None:
        raise NoTargetError
    try:
        await asyncio.to_thread(users.add)
        await rolling_restart(context, fault)
        # The old user must stay while a replica connects as it: the restart of one may have found no target.
        await asyncio.to_thread(users.delete, context.replicas.users_used())
    except (KafkaException, TimeoutError) as error:  # the controller may need some more time
        raise NoTargetError from error


async def scale(context: RunContext, fault: Fault) -> None:
    # The previous replica may still drain, and the worker refuses a second replica of its name.
    before = [one for one in context.replicas.all if one.name == f"r{_FURTHER}" and one.running]
    if before or _FURTHER in context.replicas.members:
        raise NoTargetError
    replica = context.replicas.join(_FURTHER)
    await asyncio.sleep(fault.seconds)
    replica = context.replicas.members.pop(_FURTHER, replica)
    await context.replicas.stop(replica)


async def _has_name(replica: Replica) -> None:
    """Wait until no other replica can get its name. Raise NoTargetError if it ends or that takes too long."""
    with contextlib.suppress(TimeoutError):
        await until(lambda: log_events.supervising(replica.log) or not replica.running, "", CLAIM_SECONDS)
    if not (replica.running and log_events.supervising(replica.log)):
        raise NoTargetError


async def duplicate_replica(context: RunContext, fault: Fault) -> None:
    async with _claimed(context, fault) as (number, replica):
        await _has_name(replica)  # while both start, either of them may get it
        other = context.replicas.start(number, listener=_FURTHER, duplicate=True)
        try:
            await until(lambda: not (other.running and replica.running), "", REFUSAL_SECONDS)
            if replica.running and other.process.poll() != REFUSED:
                raise TimeoutError  # noqa: TRY301 - reported in the same way
        except TimeoutError:
            context.replicas.failed.append(f"a second replica {replica.name} was not refused, see {other.log.name}")
        finally:
            context.replicas.kill(other)


async def duplicate_replica_other_host(context: RunContext, fault: Fault) -> None:
    async with _claimed(context, fault) as (number, _):
        other = context.replicas.start(number, FAKE_HOST, listener=_FURTHER, duplicate=True)
        await asyncio.sleep(fault.seconds)
        if other.running:
            await context.replicas.stop(other, twice=True)  # the two fence each other, so it may end uncleanly
        else:
            context.replicas.record_unrequested_end(other)


# -- the pipeline


async def kill_pipeline(context: RunContext, fault: Fault) -> None:
    """Kill a process of Spark's driver a while after it has reached a broker. Until then, Spark only starts."""
    jobs = context.jobs
    if jobs is None:
        raise NoTargetError
    ports = {link.port for link in context.cluster.links_of(0, -1)}
    try:
        await until(lambda: jobs.connected(ports), "", CLAIM_SECONDS)
    except TimeoutError:
        raise NoTargetError from None
    await asyncio.sleep(fault.seconds)
    if not jobs.kill(fault.slot):
        raise NoTargetError


FUNCTIONS = (
    *(kill_process, kill_child, term_process, freeze_process),
    *(freeze_replica, freeze_supervisor, kill_supervisor, restart, double_sigterm, small_queue, rolling_restart),
    *(clock_forward, clock_back, rotate_credentials),
    *(scale, duplicate_replica, duplicate_replica_other_host),
    kill_pipeline,
)
