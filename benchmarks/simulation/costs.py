"""The costs of the parts of the consumer protocol, measured with Kafka 4.3 and one broker on a machine like this.

The heartbeat is ``group.consumer.heartbeat.interval.ms``. All times are in seconds.
"""

from __future__ import annotations

DELIVERY = 0.03  # from the heartbeat that brings a partition until its owner's poll
BROKER_IDLE = 0.03  # of a CPU, without any group
REQUEST = 0.001  # of a CPU of the broker, per heartbeat, commit or small read
LOOK = 0.0005  # the same for one description of the group with 20 to 100 members
COMMITS = 1.0  # of one process, per second at most
WATCH_SECONDS = 2.0  # between two reads of a detached task's mark
LOOK_SECONDS = 5.0  # between two looks at the group, by each owner with detached tasks
CHANGE_REQUESTS = 4.0  # per change of a subscription: joining, reading the metadata, and acknowledging
DETACHED_REQUESTS = 5.0  # the entry, the mark, the look, the commit of the mark, and the commit that takes it over


def coordinator(*, processes: int, heartbeat: float, commits: float, changes: float, detached: float) -> float:
    """Return the load of the group's coordinator, in CPUs.

    ``commits`` and ``changes`` are per second. ``detached`` is the average number of detached tasks.
    """
    watching = min(detached, processes)
    requests = processes / heartbeat + commits + changes * CHANGE_REQUESTS + detached / WATCH_SECONDS
    return BROKER_IDLE + requests * REQUEST + watching / LOOK_SECONDS * LOOK
