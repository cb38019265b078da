"""What the faults of networks and brokers do. Each returns when it is over and its part is whole again."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

from chaos import acts, own, packets
from chaos.cluster import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from chaos.acts import Scene
    from chaos.node import Node
    from chaos.plan import Fault
    from chaos.proxy import Link, Way
    from tests.stores.postgres import Postgres

DELAY, JITTER = 0.1, 0.05  # seconds
RATE = 20_000  # bytes per second
LOSS = 0.2  # of all packets
_UNHEARD = 1.0  # seconds
_STOP_SECONDS = 40.0  # of a broker, after SIGTERM
_STOPPED, _GOING = 0.08, 0.02  # seconds, in turns, of a slow broker


# -- networks


def _links(scene: Scene, fault: Fault) -> list[Link]:
    return scene.cluster.lane(fault.replica % scene.fleet.options.replicas, fault.broker)


async def _block(ways: list[Way], seconds: float) -> None:
    for way in ways:
        way.block()
    try:
        await asyncio.sleep(seconds)
    finally:
        for way in ways:
            way.clear()


async def cut(scene: Scene, fault: Fault) -> None:
    await _block([way for link in _links(scene, fault) for way in (link.out, link.back)], fault.seconds)


async def cut_out(scene: Scene, fault: Fault) -> None:
    await _block([link.out for link in _links(scene, fault)], fault.seconds)


async def cut_in(scene: Scene, fault: Fault) -> None:
    await _block([link.back for link in _links(scene, fault)], fault.seconds)


async def reset(scene: Scene, fault: Fault) -> None:
    links = _links(scene, fault)
    for link in links:
        link.refusing = True
        link.reset()
    try:
        await asyncio.sleep(fault.seconds)
    finally:
        for link in links:
            link.refusing = False


async def _shape(scene: Scene, fault: Fault, **shape: float) -> None:
    links = _links(scene, fault)
    for way in (way for link in links for way in (link.out, link.back)):
        for name, value in shape.items():
            setattr(way, name, value)
    try:
        await asyncio.sleep(fault.seconds)
    finally:
        for link in links:
            link.clear()


async def undecided(scene: Scene, fault: Fault) -> None:
    """What the process had asked for is done or not, and nobody has told it."""
    ways = [link.back for link in _links(scene, fault)]
    for way in ways:
        way.block()
    try:
        await asyncio.sleep(_UNHEARD)
        await acts.kill_process(scene, fault)
    finally:
        for way in ways:
            way.clear()


async def drop(scene: Scene, fault: Fault) -> None:
    await _lose(scene, fault, 1.0)


async def loss(scene: Scene, fault: Fault) -> None:
    await _lose(scene, fault, LOSS)


async def _lose(scene: Scene, fault: Fault, share: float) -> None:
    ports = [link.port for link in _links(scene, fault)]
    packets.lose(ports, share)
    try:
        await asyncio.sleep(fault.seconds)
    finally:
        packets.keep(ports, share)


async def delay(scene: Scene, fault: Fault) -> None:
    await _shape(scene, fault, delay=DELAY, jitter=JITTER)


async def throttle(scene: Scene, fault: Fault) -> None:
    await _shape(scene, fault, rate=RATE)


# -- brokers


def _node(scene: Scene, fault: Fault) -> Node:
    nodes = scene.cluster.nodes
    return nodes[fault.broker % len(nodes)]


async def _again(scene: Scene, node: Node) -> None:
    """Start a broker that has ended."""
    try:
        await until(lambda: not node.running, "", _STOP_SECONDS)
    except TimeoutError:
        node.signal(signal.SIGKILL)
        await until(lambda: not node.running, f"broker {node.number} does not end", _STOP_SECONDS)
    node.launch(scene.cluster.run)
    await scene.cluster.wait_answers(node)  # which starts it once more if it ends again


async def broker_kill(scene: Scene, fault: Fault) -> None:
    node = _node(scene, fault)
    node.signal(signal.SIGKILL)
    await asyncio.sleep(fault.seconds)
    await _again(scene, node)


async def broker_restart(scene: Scene, fault: Fault) -> None:
    node = _node(scene, fault)
    node.signal(signal.SIGTERM)
    await _again(scene, node)


async def broker_rolling(scene: Scene, fault: Fault) -> None:
    for number in range(len(scene.cluster.nodes)):
        await broker_restart(scene, fault._replace(broker=number))
        await scene.cluster.wait_in_sync(scene.topics)


async def broker_freeze(scene: Scene, fault: Fault) -> None:
    node = _node(scene, fault)
    node.signal(signal.SIGSTOP)
    try:
        await asyncio.sleep(fault.seconds)
    finally:
        node.signal(signal.SIGCONT)


async def broker_slow(scene: Scene, fault: Fault) -> None:
    node = _node(scene, fault)
    try:
        for _ in range(round(fault.seconds / (_STOPPED + _GOING))):
            node.signal(signal.SIGSTOP)
            await asyncio.sleep(_STOPPED)
            node.signal(signal.SIGCONT)
            await asyncio.sleep(_GOING)
    finally:
        node.signal(signal.SIGCONT)


async def broker_disk_full(scene: Scene, fault: Fault) -> None:
    node = _node(scene, fault)
    await asyncio.to_thread(node.fill_disk)
    try:
        await asyncio.sleep(fault.seconds)
    finally:
        node.free_disk()
    # Whether it has given up by itself or only its log: it has to begin anew.
    node.signal(signal.SIGKILL)
    await _again(scene, node)


# -- stores


def _server(scene: Scene) -> Postgres:
    if scene.store is None or scene.store.server is None:
        raise acts.NoTargetError
    return scene.store.server


async def store_kill(scene: Scene, fault: Fault) -> None:
    server = _server(scene)
    await asyncio.to_thread(server.stop)
    await asyncio.sleep(fault.seconds)
    await asyncio.to_thread(server.start)


async def store_freeze(scene: Scene, fault: Fault) -> None:
    processes = _server(scene).processes()
    own.send(processes, signal.SIGSTOP)
    try:
        await asyncio.sleep(fault.seconds)
    finally:
        own.send(processes, signal.SIGCONT)


_BROKERS = (broker_kill, broker_restart, broker_rolling, broker_freeze, broker_slow, broker_disk_full)
_NETWORKS = (cut, cut_out, cut_in, reset, delay, throttle, drop, loss, undecided)
_PROCESSES = (acts.kill_process, acts.term_process, acts.freeze_process)
_REPLICAS = (acts.freeze_replica, acts.freeze_supervisor, acts.kill_supervisor, acts.restart, acts.hurry)
_MORE = (acts.small_queue, acts.rolling_restart, acts.scale, acts.twin, acts.twin_elsewhere)

ACTS: dict[str, Callable[[Scene, Fault], Awaitable[None]]] = {
    function.__name__.replace("_", "-"): function
    for function in (*_BROKERS, *_NETWORKS, *_PROCESSES, *_REPLICAS, *_MORE, store_kill, store_freeze)
}
