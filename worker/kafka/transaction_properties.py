"""The properties of the transactional producer, and of the consumer that determines how a transaction ended.

docs/decisions/0060 has the measurements behind these choices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.kafka import properties

if TYPE_CHECKING:
    from worker.kafka.properties import Link, Properties

TIMEOUT = "transaction.timeout.ms"

_TRANSACTIONAL: Properties = {
    # A transaction whose producer has died blocks its partitions for this long, because their next owner cannot read
    # the group's positions. A transaction begins when the work is done, so it needs only the time of a few requests.
    TIMEOUT: 10_000,
    # A transaction is refused, with a retriable error, until the markers of the previous one are written, which takes 4
    # ms. So the back-off determines the duration of a transaction: 99 ms with the default of 100, 25 with 20, 10 with
    # 5, 7 with 2.
    "retry.backoff.ms": 2,
    "retry.backoff.max.ms": 20,
    # Ending a transaction sends queued messages, so this matters only for transactions with many messages.
    "linger.ms": 1,
    # Report only failures one by one. With thousands of answers, a callback each would cost more than producing.
    "delivery.report.only.error": True,
}


def transactional(link: Link, client_id: str, transactional_id: str, record_limit: int | None = None) -> Properties:
    """Return the properties of a producer that writes answers and positions together.

    ``message.timeout.ms`` stays 0 (no limit), which the client allows here. Any other value would have to be within
    ``transaction.timeout.ms``, and a message time-out would be one more failure with an unknown outcome. If a
    transaction cannot be sent, the coordinator's time-out ends it, with a certain outcome. ``transactional_id`` must be
    the same after restarts of this process: a new producer with that id ends at once what the last one left open.
    """
    rendered = properties.producer(link, client_id, record_limit)
    rendered |= {name: value for name, value in _TRANSACTIONAL.items() if name not in link.given}
    rendered["transactional.id"] = transactional_id
    # The client refuses a socket time-out that is longer than the transaction's.
    rendered["socket.timeout.ms"] = min(int(rendered["socket.timeout.ms"]), int(rendered[TIMEOUT]))
    return rendered


def checker(link: Link, client_id: str) -> Properties:
    """Return the properties of a consumer that only reads the group's positions and never joins the group."""
    return properties.common(link, client_id) | {
        "group.id": link.group,
        "enable.auto.commit": False,
        # The broker then replies only when no open transaction can change the result.
        "isolation.level": "read_committed",
    }
