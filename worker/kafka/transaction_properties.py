"""The properties of the transactional producer, and of the consumer that looks up how a transaction ended.

What was measured for these choices is in docs/decisions/0060.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.kafka import properties

if TYPE_CHECKING:
    from worker.kafka.properties import Link, Properties

TIMEOUT = "transaction.timeout.ms"

_TRANSACTIONAL: Properties = {
    # How long a transaction whose producer has died keeps its partitions waiting: their next owner cannot read the
    # group's positions meanwhile. It begins when the work is done, so it needs no more than a few requests take.
    TIMEOUT: 10_000,
    # A transaction that follows another is told to wait, by an error, until the markers of the last one are written,
    # which takes 4 ms; how soon the client asks again decides what one transaction costs: 99 ms with the default of
    # 100, 25 with 20, 10 with 5, 7 with 2.
    "retry.backoff.ms": 2,
    "retry.backoff.max.ms": 20,
    # The end of a transaction sends what lingers, so this is only about those of many messages.
    "linger.ms": 1,
    # Only failures are told one by one: with thousands of answers a call for each would cost more than producing.
    "delivery.report.only.error": True,
}


def transactional(link: Link, client_id: str, transactional_id: str, record_limit: int | None = None) -> Properties:
    """The properties of a producer that writes answers and positions together.

    ``message.timeout.ms`` stays 0 (for ever), which the client allows here: any other value has to be within
    ``transaction.timeout.ms``, and what a message that has timed out ends in is only one more failure of which nobody
    knows whether it was one. The coordinator's time-out ends a transaction that cannot be sent, and that is certain.
    ``transactional_id`` must stay the same over restarts of this process: a new producer of that name ends what the
    last one left open at once.
    """
    rendered = properties.producer(link, client_id, record_limit)
    rendered |= {name: value for name, value in _TRANSACTIONAL.items() if name not in link.given}
    rendered["transactional.id"] = transactional_id
    # The client refuses to wait longer for one answer than the transaction lasts.
    rendered["socket.timeout.ms"] = min(int(rendered["socket.timeout.ms"]), int(rendered[TIMEOUT]))
    return rendered


def checker(link: Link, client_id: str) -> Properties:
    """The properties of a consumer that only asks where the group stands, and never joins it."""
    return properties.common(link, client_id) | {
        "group.id": link.group,
        "enable.auto.commit": False,
        # The broker then answers only when no transaction is open any more that would change the answer.
        "isolation.level": "read_committed",
    }
