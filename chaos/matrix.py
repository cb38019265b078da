"""Which runs make up the quick and the long form."""

from __future__ import annotations

from typing import Any

from chaos.plan import Options

AT_MOST, AT_LEAST, EXACTLY = "at-most-once", "at-least-once", "exactly-once"

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
    *(_run(165, EXACTLY, mix="brokers", faults=10), _run(166, EXACTLY, mix="brokers", faults=10, brokers=3)),
    _run(171, AT_LEAST, mix="gentle", faults=40, session=20.0),
    _run(2, EXACTLY, mix="broker-kill", faults=2, gap=1.5),  # what it once found, see chaos/findings.md
    *(_run(172, g, mix="requests", faults=0, minutes=1) for g in (EXACTLY, AT_LEAST, AT_MOST)),
)
