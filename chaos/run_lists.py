"""The runs of the forms, and the soak."""

from __future__ import annotations

from typing import Any

from chaos.features import DRAWN, parse
from chaos.options import Options

AT_MOST, AT_LEAST, EXACTLY = _ALL = ("at-most-once", "at-least-once", "exactly-once")
_SHORT_FAULTS = "kill-process+term-process+kill-supervisor+restart+kill-unacknowledged+cut+reset"

QUICK = tuple(
    Options(seed, guarantee, faults=21, gap=0.5, session=3.0, ordering=ordering, protocol=protocol)
    for seed, guarantee, ordering, protocol in (
        (11, AT_MOST, "key", "consumer"),
        (12, AT_LEAST, "partition", "classic"),
        (13, EXACTLY, "partition", "consumer"),
    )
)

_FAULTS = 60


def _run(seed: int, guarantee: str, ordering: str = "partition", protocol: str = "consumer", **more: Any) -> Options:
    given: dict[str, Any] = {"faults": _FAULTS, "gap": 0.6, "ordering": ordering, "protocol": protocol, **more}
    return Options(seed, guarantee, **given)


# The settings of a user who sets none.
_DEFAULTS: dict[str, Any] = {"mix": _SHORT_FAULTS, "gap": 3.0, "session": 45.0, "heartbeat": 5.0, "attempts": 3}

_MOVING = (
    *((EXACTLY, "partition", "consumer"), (AT_LEAST, "partition", "classic"), (AT_MOST, "partition", "consumer")),
    *((EXACTLY, "partition", "classic"), (AT_LEAST, "partition", "consumer"), (AT_MOST, "partition", "classic")),
    *((EXACTLY, "unordered", "consumer"), (AT_LEAST, "key", "consumer"), (AT_MOST, "unordered", "consumer")),
)
_CROSSED = (
    *((EXACTLY, "unordered", "classic", 3), (EXACTLY, "key", "consumer", 3), (EXACTLY, "key", "classic", 1)),
    *((AT_LEAST, "unordered", "classic", 3), (AT_LEAST, "unordered", "consumer", 3)),
    *((AT_MOST, "key", "classic", 3), (AT_MOST, "key", "consumer", 3), (AT_MOST, "unordered", "classic", 1)),
)

# Each takes less than five minutes on two cores.
LONG = (
    *(_run(101, EXACTLY), _run(102, EXACTLY, protocol="classic"), _run(103, EXACTLY, "key", load="short")),
    *(_run(111, AT_LEAST), _run(112, AT_LEAST, protocol="classic"), _run(113, AT_LEAST, "key", load="short")),
    *(_run(121, AT_MOST), _run(122, AT_MOST, protocol="classic"), _run(123, AT_MOST, "key", load="short")),
    *(_run(130 + n, g, brokers=3) for n, g in enumerate((EXACTLY, AT_LEAST, AT_MOST))),
    *(_run(140 + n, g, "key", "classic", brokers=3, load="short") for n, g in enumerate((EXACTLY, AT_LEAST))),
    *(_run(151, AT_LEAST, store="sqlite"), _run(152, EXACTLY, store="sqlite")),
    *(_run(153, AT_LEAST, store="postgresql"), _run(154, AT_MOST, "unordered")),
    *(_run(161, EXACTLY, "unordered", mix="processes"), _run(162, AT_LEAST, "key", mix="processes")),
    *(_run(163, EXACTLY, protocol="classic", mix="network", faults=40), _run(164, AT_LEAST, mix="network", faults=40)),
    # Not exactly-once on one broker: Kafka can forget to end a transaction while it is killed (docs/guarantees.md).
    *(_run(165, AT_LEAST, mix="brokers", faults=10), _run(166, EXACTLY, mix="brokers", faults=10, brokers=3)),
    # Clean faults excuse nothing, so every second start and every second answer is a violation here.
    *(_run(171, g, mix="clean", faults=40, session=20.0) for g in _ALL),
    # The default settings. Freezes last for whole sessions and would take minutes each.
    *(_run(180 + n, g, faults=20, **_DEFAULTS) for n, g in enumerate(_ALL)),
    _run(2, EXACTLY, mix="broker-kill", faults=2, gap=1.5),  # it found a defect, see chaos/findings.md
    *(_run(172, g, mix="requests", faults=0, minutes=1) for g in _ALL),
    # Long gaps, so that many requests are answered while no fault excuses anything.
    *(_run(173, g, brokers=3, faults=8, gap=20.0) for g in _ALL),
    # Faults that the mix "all" rarely has.
    _run(190, EXACTLY, brokers=3, mix="broker-disk-full", faults=6, gap=10.0),
    _run(191, EXACTLY, brokers=3, mix="broker-rolling+broker-restart", faults=12, gap=3.0),
    _run(192, AT_LEAST, store="postgresql", mix="store-kill+store-freeze+kill-process", faults=16, gap=2.0),
    # Tasks that move between processes, on three brokers. They have found three defects.
    *(_run(301 + n, g, o, p, brokers=3, features="detaching") for n, (g, o, p) in enumerate(_MOVING)),
    # Packet loss, which a proxy cannot simulate.
    *(_run(320 + n, g, mix="drop+loss", faults=24, gap=1.5, brokers=3) for n, g in enumerate(_ALL)),
    # Every ordering, both protocols, with and without a state topic, on one broker and on three.
    *(_run(330 + n, g, o, p, brokers=b) for n, (g, o, p, b) in enumerate(_CROSSED)),
)

_STATES = "cancels+checkpoints+detaching"
_CHILDREN = "cancels+checkpoints+isolation+limits+extra-slots"
_AROUND = "partitions+clocks+client+cancels+checkpoints+detaching"
_SUBMITTED = (
    *((EXACTLY, "partition", "consumer", 3), (AT_LEAST, "key", "classic", 3)),
    (AT_MOST, "unordered", "consumer", 1),
)
_SOAK_GAP = 5.0
_EVERYTHING = f"{_CHILDREN}+detaching+follow-ups+json+retention"


def _featured(seed: int, guarantee: str, features: str, **more: Any) -> Options:
    return _run(seed, guarantee, **{"faults": 20, "gap": 1.5, "features": parse(features, seed), **more})


# The features of the worker that plain tasks do not use. About a minute and a half each.
FEATURES = (
    *(_featured(201 + n, g, _STATES) for n, g in enumerate(_ALL)),
    *(_featured(204 + n, g, _STATES, protocol="classic") for n, g in enumerate(_ALL)),
    *(_featured(207 + n, g, _CHILDREN) for n, g in enumerate(_ALL)),
    *(_featured(210 + n, g, "follow-ups+json", ordering="key") for n, g in enumerate(_ALL)),
    *(_featured(213 + n, g, _EVERYTHING, ordering="unordered") for n, g in enumerate(_ALL)),
    *(_featured(216 + n, g, _STATES, mix="clean", session=20.0) for n, g in enumerate(_ALL)),
    # The default settings of worker and broker.
    *(_featured(219 + n, g, _STATES, faults=12, **_DEFAULTS) for n, g in enumerate(_ALL)),
    *(_featured(222 + n, g, DRAWN, protocol="classic" if n % 2 else "consumer") for n, g in enumerate((*_ALL, *_ALL))),
    # What changes around the worker: partitions, wall clocks, and the client that waits for answers.
    *(_featured(231 + n, g, "partitions+client", faults=50, gap=0.8) for n, g in enumerate(_ALL)),
    *(_featured(234 + n, g, "clocks+client", faults=50, gap=0.8) for n, g in enumerate(_ALL)),
    *(
        _featured(237 + n, g, _AROUND, ordering=o, protocol="classic", brokers=3, faults=50, gap=0.8)
        for n, (g, o) in enumerate(zip(_ALL, ("key", "unordered", "partition"), strict=True))
    ),
    *(_featured(240 + n, g, _AROUND, mix="clean", session=20.0) for n, g in enumerate(_ALL)),
    # TLS, passwords that are rotated, and permissions; then brokers that are upgraded one by one.
    *(_featured(243 + n, g, f"{_STATES}+follow-ups+secured", brokers=3, faults=30) for n, g in enumerate(_ALL)),
    *(
        _featured(246 + n, g, "detaching+upgrade", protocol=p, brokers=3, faults=30)
        for n, (g, p) in enumerate(zip(_ALL, ("consumer", "classic", "consumer"), strict=True))
    ),
    # What is committed is deleted, again and again.
    *(
        _featured(260 + n, g, "retention", mix="delete-records+kill-process+restart+cut")
        for n, g in enumerate((AT_LEAST, EXACTLY))
    ),
    # Requests that end their child process, and no other faults.
    *(_featured(263 + n, g, "limits", mix="requests", faults=0, minutes=1.0) for n, g in enumerate(_ALL)),
    _featured(262, EXACTLY, "secured", mix="rotate-credentials+scale", faults=6, gap=8.0, session=20.0),
    # Spark's commands, with gaps that give Spark time to start.
    *(
        _featured(250 + n, g, "pipeline", ordering=o, protocol=p, brokers=b, gap=8.0)
        for n, (g, o, p, b) in enumerate(_SUBMITTED)
    ),
)


def soak(given: dict[str, Any]) -> Options:
    """Return the soak: one hour of mixed tasks of 1 ms to 60 s on three brokers, and a fault every 5 s on average.

    ``given`` are options to use instead.
    """
    features = "checkpoints+detaching+client"
    usual: dict[str, Any] = {"guarantee": EXACTLY, "brokers": 3, "load": "soak", "minutes": 60.0, "gap": _SOAK_GAP}
    return Options(**{"seed": 400, "features": features, **usual, **given})
