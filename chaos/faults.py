"""Which faults there are. What they do stands in ``acts``, by the same names; when and to whom in ``plan``."""

from __future__ import annotations

from typing import Literal, NamedTuple

Area = Literal["process", "replica", "network", "broker", "store"]


class Kind(NamedTuple):
    """A fault. ``lengths`` are what its duration is drawn from, in seconds or, with ``sessions``, in session time-outs.

    ``clean``: it is no excuse for a second start or a second answer, whatever the guarantee.
    """

    name: str
    area: Area
    weight: int
    lengths: tuple[float, ...]
    meaning: str
    sessions: bool = False
    clean: bool = False
    brokers: int = 1  # at least
    root: bool = False
    server: bool = False  # needs a store that is a server


_MOMENT = (0.0,)
_PAUSES = (0.5, 1.5, 3.0)
_CUTS = (2.0, 6.0, 12.0)

KINDS = (
    Kind("kill-process", "process", 8, _MOMENT, "SIGKILL to a worker process"),
    Kind("freeze-process", "process", 6, _PAUSES, "SIGSTOP to a worker process, and SIGCONT", sessions=True),
    Kind("term-process", "process", 2, _MOMENT, "SIGTERM to a worker process: it drains and is replaced", clean=True),
    Kind("kill-supervisor", "replica", 3, (0.5, 3.0), "SIGKILL to a supervisor; a new replica takes its place"),
    Kind("freeze-replica", "replica", 2, _PAUSES, "SIGSTOP to a whole replica, and SIGCONT", sessions=True),
    Kind("freeze-supervisor", "replica", 1, _PAUSES, "SIGSTOP to a supervisor alone", sessions=True, clean=True),
    Kind("restart", "replica", 3, (0.5,), "SIGTERM to a replica, and a new one", clean=True),
    Kind("hurry", "replica", 1, (0.5,), "SIGTERM twice: running tasks are cancelled; and a new replica"),
    Kind("rolling-restart", "replica", 1, (0.5,), "every replica in turn: SIGTERM, and a new one", clean=True),
    Kind("scale", "replica", 3, (4.0, 8.0, 12.0), "a further replica, and its SIGTERM", clean=True),
    Kind("small-queue", "replica", 1, (0.5,), "a replica anew whose producer's queue holds three messages", clean=True),
    Kind("twin", "replica", 1, _MOMENT, "a second replica of the same WORKER_REPLICA: must be refused", clean=True),
    Kind("twin-elsewhere", "replica", 1, (4.0, 8.0), "the same as on another machine: they fence each other"),
    Kind("cut", "network", 3, _CUTS, "black hole between a replica and a broker, or all of them"),
    Kind("cut-out", "network", 2, _CUTS, "one way: what the replica sends goes nowhere"),
    Kind("cut-in", "network", 2, _CUTS, "one way: what the brokers answer goes nowhere"),
    Kind("reset", "network", 2, (0.0, 1.0, 3.0), "connections are reset, and refused for a while"),
    Kind("delay", "network", 2, (4.0, 8.0), "100 ms more each way, give or take 50"),
    Kind("throttle", "network", 1, (4.0, 8.0), "20 kB/s each way"),
    Kind("drop", "network", 2, _CUTS, "every packet is lost, and connections go on", root=True),
    Kind("loss", "network", 1, (4.0, 8.0), "one packet in five is lost", root=True),
    Kind("undecided", "network", 3, _MOMENT, "brokers are not heard for a second, then SIGKILL to a worker process"),
    Kind("broker-kill", "broker", 3, (0.5, 4.0, 10.0), "SIGKILL to a broker, and its restart after a while"),
    Kind("broker-restart", "broker", 2, (0.5,), "SIGTERM to a broker, and its restart"),
    Kind("broker-freeze", "broker", 3, _PAUSES, "SIGSTOP to a broker, and SIGCONT", sessions=True),
    Kind("broker-slow", "broker", 2, (5.0, 10.0), "a broker runs 20 ms of every 100"),
    Kind("broker-rolling", "broker", 1, (0.5,), "SIGTERM and restart of every broker in turn", brokers=3),
    Kind("broker-disk-full", "broker", 1, (2.0, 5.0), "a broker's disk is full; then there is room again", root=True),
    Kind("store-kill", "store", 3, (0.5, 4.0), "the database is ended as in a crash, and started again", server=True),
    Kind("store-freeze", "store", 3, _PAUSES, "SIGSTOP to the database, and SIGCONT", sessions=True, server=True),
)
BY_NAME = {kind.name: kind for kind in KINDS}

MIXES = {
    "all": frozenset(BY_NAME),
    "processes": frozenset(kind.name for kind in KINDS if kind.area in ("process", "replica")),
    "network": frozenset(kind.name for kind in KINDS if kind.area == "network"),
    "brokers": frozenset(kind.name for kind in KINDS if kind.area == "broker"),
    "gentle": frozenset(kind.name for kind in KINDS if kind.clean),
    "requests": frozenset[str](),  # what the requests themselves do is enough
}


def available(mix: str, *, brokers: int, root: bool, store: str = "") -> list[Kind]:
    """The kinds of a mix, or those named with a ``+`` between, that can be done here.

    With SQLite there is one machine, so no other with a replica of the same name.
    """
    names = MIXES.get(mix, frozenset(mix.split("+")))
    if unknown := names - BY_NAME.keys():
        raise ValueError(f"no fault or mix is called {', '.join(sorted(unknown))}: see --list")
    return [
        kind
        for kind in KINDS
        if kind.name in names
        and kind.brokers <= brokers
        and (root or not kind.root)
        and (store == "postgresql" or not kind.server)
        and not (store == "sqlite" and kind.name == "twin-elsewhere")
    ]
