"""What the faults of processes and replicas do. Each returns when it is over and its part is whole again."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from typing import TYPE_CHECKING, NamedTuple

import psutil

from chaos.cluster import until
from chaos.fleet import ELSEWHERE, NOTHING, SMALL_QUEUE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from chaos.cluster import Cluster, Topics
    from chaos.fleet import Fleet, Replica
    from chaos.plan import Fault
    from chaos.stores import Store

ROLLED_SECONDS = 20.0  # for one replica to be there before the next goes
CLAIM_SECONDS = 40.0  # to wait for a target
ORPHAN_SECONDS = 15.0  # in which everything of a killed supervisor has to be gone
REFUSAL_SECONDS = 60.0
REFUSED = 2  # exit code
_FURTHER = 2  # the number of the replica that comes and goes


class Scene(NamedTuple):
    """What there is to do things to."""

    fleet: Fleet
    cluster: Cluster
    topics: Topics
    brokers: asyncio.Lock
    stores: asyncio.Lock
    store: Store | None = None


class NoTargetError(Exception):
    """There is nothing to do that to just now."""


@contextlib.asynccontextmanager
async def _claimed(scene: Scene, fault: Fault) -> AsyncIterator[tuple[int, Replica]]:
    """The replica, with nothing else of this kind done to it meanwhile."""
    number = fault.replica % scene.fleet.options.replicas
    deadline = time.monotonic() + CLAIM_SECONDS
    while True:
        replica = scene.fleet.members.get(number)
        if replica is not None and replica.running and not replica.lock.locked():
            break
        if time.monotonic() > deadline:
            raise NoTargetError
        await asyncio.sleep(0.1)
    async with replica.lock:
        yield number, replica


async def _worker(scene: Scene, fault: Fault) -> psutil.Process:
    """A worker process, also of a replica that something else is done to."""
    number = fault.replica % scene.fleet.options.replicas
    deadline = time.monotonic() + CLAIM_SECONDS
    while time.monotonic() < deadline:
        replica = scene.fleet.members.get(number)
        if replica is not None and (workers := replica.workers()):
            return workers[fault.slot % len(workers)]
        await asyncio.sleep(0.1)
    raise NoTargetError


def _send(process: psutil.Process, number: signal.Signals) -> None:
    with contextlib.suppress(psutil.Error):  # it has ended, and its number may be another's
        process.send_signal(number)


# -- processes


async def kill_process(scene: Scene, fault: Fault) -> None:
    _send(await _worker(scene, fault), signal.SIGKILL)


async def term_process(scene: Scene, fault: Fault) -> None:
    _send(await _worker(scene, fault), signal.SIGTERM)


async def freeze_process(scene: Scene, fault: Fault) -> None:
    await _freeze([await _worker(scene, fault)], fault.seconds)


async def _freeze(processes: list[psutil.Process], seconds: float) -> None:
    for process in processes:
        _send(process, signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        for process in processes:
            _send(process, signal.SIGCONT)


# -- replicas


async def freeze_replica(scene: Scene, fault: Fault) -> None:
    async with _claimed(scene, fault) as (_, replica):
        await _freeze([psutil.Process(replica.process.pid), *replica.workers()], fault.seconds)


async def freeze_supervisor(scene: Scene, fault: Fault) -> None:
    async with _claimed(scene, fault) as (_, replica):
        await _freeze([psutil.Process(replica.process.pid)], fault.seconds)


async def kill_supervisor(scene: Scene, fault: Fault) -> None:
    async with _claimed(scene, fault) as (number, replica):
        workers = replica.workers()
        scene.fleet.kill(replica)
        try:
            await until(lambda: not any(map(_alive, workers)), "", ORPHAN_SECONDS)
        except TimeoutError:
            left = [worker.pid for worker in workers if _alive(worker)]
            scene.fleet.failed.append(f"processes {left} outlive their supervisor {replica.name}")
        await asyncio.sleep(fault.seconds)
        scene.fleet.join(number)


def _alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        # One that is frozen, and had not come to asking for its parent's death before, will see it when it wakes up.
        gone = (psutil.STATUS_ZOMBIE, psutil.STATUS_STOPPED)
        return process.is_running() and process.status() not in gone
    return False


async def _replace(scene: Scene, fault: Fault, *, twice: bool = False, more: Mapping[str, str] = NOTHING) -> None:
    async with _claimed(scene, fault) as (number, replica):
        await scene.fleet.stop(replica, twice=twice)
        scene.fleet.join(number, more)


async def restart(scene: Scene, fault: Fault) -> None:
    await _replace(scene, fault)


async def hurry(scene: Scene, fault: Fault) -> None:
    await _replace(scene, fault, twice=True)


async def small_queue(scene: Scene, fault: Fault) -> None:
    await _replace(scene, fault, more=SMALL_QUEUE)


async def rolling_restart(scene: Scene, fault: Fault) -> None:
    for number in range(scene.fleet.options.replicas):
        with contextlib.suppress(NoTargetError, TimeoutError):  # brokers may be away, and the next fault comes anyway
            await restart(scene, fault._replace(replica=number))
            await scene.fleet.wait_ready(ROLLED_SECONDS)


async def scale(scene: Scene, fault: Fault) -> None:
    if _FURTHER in scene.fleet.members:
        raise NoTargetError
    replica = scene.fleet.join(_FURTHER)
    await asyncio.sleep(fault.seconds)
    replica = scene.fleet.members.pop(_FURTHER, replica)
    await scene.fleet.stop(replica)


async def twin(scene: Scene, fault: Fault) -> None:
    async with _claimed(scene, fault) as (number, replica):
        other = scene.fleet.start(number, lane=_FURTHER)
        try:
            await until(lambda: not (other.running and replica.running), "", REFUSAL_SECONDS)
            if replica.running and other.process.poll() != REFUSED:
                raise TimeoutError  # noqa: TRY301 - the same is to be told
        except TimeoutError:
            scene.fleet.failed.append(f"a second replica {replica.name} was not refused, see {other.log.name}")
        finally:
            scene.fleet.kill(other)


async def twin_elsewhere(scene: Scene, fault: Fault) -> None:
    async with _claimed(scene, fault) as (number, _):
        other = scene.fleet.start(number, ELSEWHERE, lane=_FURTHER)
        await asyncio.sleep(fault.seconds)
        if other.running:
            await scene.fleet.stop(other, twice=True)  # what they come to beside each other is no clean end
        else:
            scene.fleet.note(other, asked=False)
