"""The kinds of faults. ``process_faults`` and ``network_broker_faults`` inject them, ``plan`` draws them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection

RIGHTS_NEED = {
    "disks": "full disks, which need root",
    "packets": "packet loss, which needs root and iptables",
    "clocks": "clocks that jump, which need a C compiler (cc)",
}
RIGHTS = frozenset(RIGHTS_NEED)
Area = Literal["process", "replica", "network", "clock", "broker", "store", "pipeline"]


class Kind(NamedTuple):
    """A kind of fault.

    ``lengths`` is the range of its duration, in seconds or, with ``sessions``, in session time-outs. A ``clean`` fault
    excuses neither a second start nor a second answer. A fault may need a ``right`` of ``RIGHTS``, a store that is a
    ``server``, or a feature (``needs``).
    """

    name: str
    area: Area
    weight: int
    lengths: tuple[float, ...]
    meaning: str
    sessions: bool = False
    clean: bool = False
    brokers: int = 1  # at least
    right: str = ""
    server: bool = False
    needs: str = ""  # a feature of the run

    @property
    def blocks(self) -> bool:
        """Return whether commits of its target may fail or take seconds while it lasts."""
        return not self.clean and (
            (self.area in ("broker", "network") and self.name != "delay") or self.name.startswith("freeze")
        )


_MOMENT = (0.0,)
_PAUSES = (0.5, 1.5, 3.0)
_CUTS = (2.0, 6.0, 12.0)

KINDS = (
    Kind("kill-process", "process", 8, _MOMENT, "SIGKILL to a worker process"),
    Kind("freeze-process", "process", 6, _PAUSES, "SIGSTOP to a worker process, and SIGCONT", sessions=True),
    Kind("term-process", "process", 2, _MOMENT, "SIGTERM to a worker process: it drains and is replaced", clean=True),
    Kind("kill-child", "process", 6, _MOMENT, "SIGKILL to the child process of a task", needs="isolation"),
    Kind("kill-supervisor", "replica", 3, (0.5, 3.0), "SIGKILL to a supervisor; a new replica takes its place"),
    Kind("freeze-replica", "replica", 2, _PAUSES, "SIGSTOP to a whole replica, and SIGCONT", sessions=True),
    Kind("freeze-supervisor", "replica", 1, _PAUSES, "SIGSTOP to a supervisor alone", sessions=True, clean=True),
    Kind("restart", "replica", 3, (0.5,), "SIGTERM to a replica, and a new one", clean=True),
    Kind("double-sigterm", "replica", 1, (0.5,), "SIGTERM twice, which cancels running tasks; then a new replica"),
    Kind("rolling-restart", "replica", 1, (0.5,), "every replica in turn: SIGTERM, and a new one", clean=True),
    Kind(
        "rotate-credentials",
        "replica",
        16,
        (0.5,),
        "restart every replica in turn with a new user, then delete the old user",
        clean=True,
        needs="secured",
    ),
    Kind("scale", "replica", 3, (4.0, 8.0, 12.0), "add a replica, then stop it by SIGTERM", clean=True),
    Kind("small-queue", "replica", 1, (0.5,), "restart a replica with a producer queue of three messages", clean=True),
    Kind(
        "duplicate-replica",
        "replica",
        1,
        _MOMENT,
        "start a second replica with the same name, which must be refused",
        clean=True,
    ),
    Kind(
        "duplicate-replica-other-host",
        "replica",
        1,
        (4.0, 8.0),
        "the same as if on another host: they fence each other",
    ),
    Kind("cut", "network", 3, _CUTS, "deliver nothing between a replica and one or all brokers"),
    Kind("cut-out", "network", 2, _CUTS, "deliver nothing that the replica sends"),
    Kind("cut-in", "network", 2, _CUTS, "deliver nothing that the brokers send"),
    Kind("reset", "network", 2, (0.0, 1.0, 3.0), "reset connections, and refuse new ones for a while"),
    Kind("delay", "network", 2, (4.0, 8.0), "add 100 ms each way, plus or minus 50"),
    Kind("throttle", "network", 1, (4.0, 8.0), "limit each way to 20 kB/s"),
    Kind("drop", "network", 2, _CUTS, "drop every packet, with connections open", right="packets"),
    Kind("loss", "network", 1, (4.0, 8.0), "drop one packet in five", right="packets"),
    Kind(
        "clock-forward",
        "clock",
        6,
        (2.0, 6.0, 12.0),
        "set the wall clock of a replica three hours ahead, then back",
        right="clocks",
        needs="clocks",
    ),
    Kind(
        "clock-back",
        "clock",
        6,
        (2.0, 6.0, 12.0),
        "set the wall clock of a replica three hours back, then ahead again",
        right="clocks",
        needs="clocks",
    ),
    Kind(
        "kill-unacknowledged",
        "network",
        3,
        _MOMENT,
        "withhold the brokers' responses for a second, then kill a worker process",
    ),
    Kind("broker-kill", "broker", 3, (0.5, 4.0, 10.0), "SIGKILL to a broker, and restart it after a while"),
    Kind("broker-restart", "broker", 2, (0.5,), "SIGTERM to a broker, and restart it"),
    Kind("broker-freeze", "broker", 3, _PAUSES, "SIGSTOP to a broker, and SIGCONT", sessions=True),
    Kind("broker-slow", "broker", 2, (5.0, 10.0), "let a broker run 20 ms of every 100"),
    Kind("broker-rolling", "broker", 1, (0.5,), "SIGTERM and restart every broker in turn", brokers=3),
    Kind(
        "broker-upgrade",
        "broker",
        20,
        (0.5,),
        "SIGTERM to a broker of the old version, and start it in the new one",
        needs="upgrade",
    ),
    Kind("broker-disk-full", "broker", 1, (2.0, 5.0), "fill a broker's disk, then free it", right="disks"),
    Kind(
        "delete-records",
        "broker",
        4,
        _MOMENT,
        "delete all requests that are committed, as retention does",
        clean=True,
        needs="retention",
    ),
    Kind(
        "add-partitions",
        "broker",
        4,
        _MOMENT,
        "add a partition to the request topic, up to eight more",
        clean=True,
        needs="partitions",
    ),
    Kind("store-kill", "store", 3, (0.5, 4.0), "stop the database as in a crash, and restart it", server=True),
    Kind("store-freeze", "store", 3, _PAUSES, "SIGSTOP to the database, and SIGCONT", sessions=True, server=True),
    Kind(
        "kill-pipeline",
        "pipeline",
        20,
        (0.0, 6.0, 12.0, 20.0),
        "SIGKILL to the Python process or the JVM of the Spark driver, 0 to 20 s after it has reached a broker",
        clean=True,
        needs="pipeline",
    ),
)
BY_NAME = {kind.name: kind for kind in KINDS}

MIXES = {
    "all": frozenset(BY_NAME),
    "processes": frozenset(kind.name for kind in KINDS if kind.area in ("process", "replica")),
    "network": frozenset(kind.name for kind in KINDS if kind.area == "network"),
    "clocks": frozenset(kind.name for kind in KINDS if kind.area == "clock"),
    "brokers": frozenset(kind.name for kind in KINDS if kind.area == "broker"),
    "clean": frozenset(kind.name for kind in KINDS if kind.clean),
    "requests": frozenset[str](),  # only the faults of the requests themselves
}


def available(
    mix: str, *, brokers: int, rights: Collection[str], store: str = "", uses: Collection[str] = ()
) -> list[Kind]:
    """Return the possible kinds of a mix, or of kinds joined by ``+``. Raise ValueError for an unknown one.

    SQLite implies one host, so no other host can have a replica of the same name.
    """
    names = MIXES.get(mix, frozenset(mix.split("+")))
    if unknown := names - BY_NAME.keys():
        raise ValueError(f"no fault or mix is called {', '.join(sorted(unknown))}: see --list")
    return [
        kind
        for kind in KINDS
        if kind.name in names
        and kind.brokers <= brokers
        and (not kind.right or kind.right in rights)
        and (store == "postgresql" or not kind.server)
        and (not kind.needs or kind.needs in uses)
        and not (store == "sqlite" and kind.name == "duplicate-replica-other-host")
    ]
