"""The faults of networks, brokers and stores. Each function returns when its fault is over and its target healthy."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from chaos import groups, packet_loss, process_faults, procutil
from chaos.cluster import until

if TYPE_CHECKING:
    from chaos.node import Node
    from chaos.plan import Fault
    from chaos.postgres import Postgres
    from chaos.process_faults import RunContext
    from chaos.proxy import Link, Way

DELAY, JITTER = 0.1, 0.05  # seconds
RATE = 20_000  # bytes per second
LOSS = 0.2  # of all packets
_UNHEARD_SECONDS = 1.0  # seconds without a response from the brokers before the kill
_STOP_SECONDS = 40.0  # seconds for a broker to end after SIGTERM
_LOAD_SECONDS = 1.0  # for the groups of one broker; observed 0.7
_STOPPED, _RUNNING = 0.08, 0.02  # seconds; a slow broker alternates between the two


# -- networks


def _links(context: RunContext, fault: Fault) -> list[Link]:
    return context.cluster.links_of(fault.replica % context.replicas.options.replicas, fault.broker)


async def _block(ways: list[Way], seconds: float) -> None:
    for way in ways:
        way.block()
    try:
        await asyncio.sleep(seconds)
    finally:
        for way in ways:
            way.clear()


async def cut(context: RunContext, fault: Fault) -> None:
    await _block([way for link in _links(context, fault) for way in (link.out, link.back)], fault.seconds)


async def cut_out(context: RunContext, fault: Fault) -> None:
    await _block([link.out for link in _links(context, fault)], fault.seconds)


async def cut_in(context: RunContext, fault: Fault) -> None:
    await _block([link.back for link in _links(context, fault)], fault.seconds)


async def reset(context: RunContext, fault: Fault) -> None:
    links = _links(context, fault)
    for link in links:
        link.refusing = True
        link.reset()
    try:
        await asyncio.sleep(fault.seconds)
    finally:
        for link in links:
            link.refusing = False


async def _shape(context: RunContext, fault: Fault, **shape: float) -> None:
    links = _links(context, fault)
    for way in (way for link in links for way in (link.out, link.back)):
        for name, value in shape.items():
            setattr(way, name, value)
    try:
        await asyncio.sleep(fault.seconds)
    finally:
        for link in links:
            link.clear()


async def kill_unacknowledged(context: RunContext, fault: Fault) -> None:
    """Kill the process while it does not know whether its last requests to the brokers succeeded."""
    ways = [link.back for link in _links(context, fault)]
    for way in ways:
        way.block()
    try:
        await asyncio.sleep(_UNHEARD_SECONDS)
        await process_faults.kill_process(context, fault)
    finally:
        for way in ways:
            way.clear()


async def drop(context: RunContext, fault: Fault) -> None:
    await _lose(context, fault, 1.0)


async def loss(context: RunContext, fault: Fault) -> None:
    await _lose(context, fault, LOSS)


async def _lose(context: RunContext, fault: Fault, share: float) -> None:
    ports = [link.port for link in _links(context, fault)]
    packet_loss.start_loss(ports, share)
    try:
        await asyncio.sleep(fault.seconds)
    finally:
        packet_loss.stop_loss(ports, share)


async def delay(context: RunContext, fault: Fault) -> None:
    await _shape(context, fault, delay=DELAY, jitter=JITTER)


async def throttle(context: RunContext, fault: Fault) -> None:
    await _shape(context, fault, rate=RATE)


# -- brokers


def _node(context: RunContext, fault: Fault) -> Node:
    nodes = context.cluster.nodes
    return nodes[fault.broker % len(nodes)]


async def _restart(context: RunContext, node: Node) -> None:
    """Wait until a broker has ended, and start it again."""
    try:
        await until(lambda: not node.running, "", _STOP_SECONDS)
    except TimeoutError:
        node.signal(signal.SIGKILL)
        await until(lambda: not node.running, f"broker {node.number} does not end", _STOP_SECONDS)
    node.launch(context.cluster.run)
    await context.cluster.wait_answers(node)  # starts it again if it ends once more


async def broker_kill(context: RunContext, fault: Fault) -> None:
    node = _node(context, fault)
    node.signal(signal.SIGKILL)
    await asyncio.sleep(fault.seconds)
    await _restart(context, node)


async def broker_restart(context: RunContext, fault: Fault) -> None:
    node = _node(context, fault)
    node.signal(signal.SIGTERM)
    await _restart(context, node)


async def broker_rolling(context: RunContext, fault: Fault) -> None:
    for number in range(len(context.cluster.nodes)):
        await broker_restart(context, fault._replace(broker=number))
        await context.cluster.wait_in_sync(context.topics)


async def broker_upgrade(context: RunContext, fault: Fault) -> None:
    """Upgrade the target, or the next broker that has the old version."""
    nodes, first = context.cluster.nodes, fault.broker % len(context.cluster.nodes)
    old = [node for node in (*nodes[first:], *nodes[:first]) if not node.upgraded]
    if not old:
        raise process_faults.NoTargetError
    old[0].upgrade()
    await broker_restart(context, fault._replace(broker=nodes.index(old[0])))


async def _wait_for_coordinator(context: RunContext) -> None:
    """Wait until the group's coordinator is loaded. Raise NoTargetError if that takes too long.

    Kafka 4.3.0 may forget the session time-outs of a group if it is frozen while it loads it (``findings.md``).
    """
    deadline = time.monotonic() + _STOP_SECONDS
    bootstrap, group, topic = context.cluster.bootstrap, context.replicas.group, context.topics.requests
    while True:
        try:
            await asyncio.to_thread(groups.committed, bootstrap, group, topic)
        except (KafkaException, TimeoutError) as error:
            if time.monotonic() > deadline:
                raise process_faults.NoTargetError from error
            await asyncio.sleep(_LOAD_SECONDS / 2)
        else:
            await asyncio.sleep(_LOAD_SECONDS)  # until the other groups of this broker are loaded
            return


async def broker_freeze(context: RunContext, fault: Fault) -> None:
    await _wait_for_coordinator(context)
    node = _node(context, fault)
    node.signal(signal.SIGSTOP)
    try:
        await asyncio.sleep(fault.seconds)
    finally:
        node.signal(signal.SIGCONT)


async def broker_slow(context: RunContext, fault: Fault) -> None:
    node = _node(context, fault)
    try:
        for _ in range(round(fault.seconds / (_STOPPED + _RUNNING))):
            node.signal(signal.SIGSTOP)
            await asyncio.sleep(_STOPPED)
            node.signal(signal.SIGCONT)
            await asyncio.sleep(_RUNNING)
    finally:
        node.signal(signal.SIGCONT)


async def broker_disk_full(context: RunContext, fault: Fault) -> None:
    node = _node(context, fault)
    await asyncio.to_thread(node.fill_disk)
    try:
        await asyncio.sleep(fault.seconds)
    finally:
        node.free_disk()
    # It may have ended, or only marked its log directory offline: either way it has to restart.
    node.signal(signal.SIGKILL)
    await _restart(context, node)


async def delete_records(context: RunContext, _fault: Fault) -> None:
    if context.replicas.options.guarantee == "at-most-once":  # a committed request may still be given back
        raise process_faults.NoTargetError
    try:
        await asyncio.to_thread(
            groups.delete_committed, context.cluster.bootstrap, context.replicas.group, context.topics.requests
        )
    except KafkaException as error:  # the coordinator may need some more time
        raise process_faults.NoTargetError from error


async def add_partitions(context: RunContext, _fault: Fault) -> None:
    try:
        added = await asyncio.to_thread(groups.add_partition, context.cluster.bootstrap, context.topics.requests)
    except KafkaException as error:  # the controller may need some more time
        raise process_faults.NoTargetError from error
    if not added:
        raise process_faults.NoTargetError


# -- stores


def _server(context: RunContext) -> Postgres:
    if context.store is None or context.store.server is None:
        raise process_faults.NoTargetError
    return context.store.server


async def store_kill(context: RunContext, fault: Fault) -> None:
    server = _server(context)
    await asyncio.to_thread(server.stop)
    await asyncio.sleep(fault.seconds)
    await asyncio.to_thread(server.start)


async def store_freeze(context: RunContext, fault: Fault) -> None:
    processes = _server(context).processes()
    procutil.send(processes, signal.SIGSTOP)
    try:
        await asyncio.sleep(fault.seconds)
    finally:
        procutil.send(processes, signal.SIGCONT)


FUNCTIONS = (
    *(broker_kill, broker_restart, broker_rolling, broker_upgrade, broker_freeze, broker_slow, broker_disk_full),
    *(delete_records, add_partitions),
    *(cut, cut_out, cut_in, reset, delay, throttle, drop, loss, kill_unacknowledged),
    *(store_kill, store_freeze),
)
