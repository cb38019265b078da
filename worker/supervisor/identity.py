"""The name of the replica: unique on this machine, and the same after a restart."""

from __future__ import annotations

import contextlib
import hashlib
import socket
from typing import TYPE_CHECKING

from worker.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST = 1_000  # replicas of one group on one machine


@contextlib.contextmanager
def claimed(group: str, wanted: str) -> Iterator[str]:
    """Yield the name of this replica while it runs: ``wanted``, or the host name, with a number if that is taken.

    Transactional ids and static members use this name, and two replicas with the same name would fence each other
    repeatedly. Raise SettingsError if another replica on this machine uses the wanted name.
    """
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as claim:
        for name in _candidates(wanted):
            if _take(claim, group, name):
                yield name
                return
    raise SettingsError(
        f"WORKER_REPLICA={wanted!r}: another replica of group {group} on this machine has that name; choose another"
    )


def _candidates(wanted: str) -> Iterator[str]:
    if wanted:
        yield wanted
        return
    host = socket.gethostname()
    yield host
    for number in range(1, MOST):
        yield f"{host}.{number}"


def _take(claim: socket.socket, group: str, name: str) -> bool:
    # An abstract socket name, not in a file system: the kernel frees it when its owner ends, in any way. The hash keeps
    # the name short, because group names may be long.
    digest = hashlib.sha256(f"{group}/{name}".encode()).hexdigest()
    try:
        claim.bind(f"\0kafka-task-worker/{digest}")
    except OSError:
        return False
    return True
