"""Sends requests and counts the confirmed ones."""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from typing import TYPE_CHECKING

from worker.cli.console import meter
from worker.cli.tally import Tally, ranges
from worker.core.deadline import Deadline
from worker.kafka.sender import UNPLACED, Outgoing

if TYPE_CHECKING:
    from worker.cli.console import Meter, Stop
    from worker.cli.inputs import Source
    from worker.kafka.sender import Delivery, Sender

STOP_TIMEOUT = 10.0  # seconds in which requests in flight may be confirmed after the command was stopped


class Sent:
    """The confirmed requests in ``tally``, and the sequences of the failed ones by reason."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.failed: dict[str, list[int]] = defaultdict(list)

    @property
    def confirmed(self) -> int:
        return self.tally.sent

    def on_delivery(self, sequence: int, delivery: Delivery) -> None:
        """Record the delivery or failure of the request with this sequence."""
        if delivery.failure is not None:
            self.failed[delivery.failure].append(sequence)
        elif delivery.offset is None:
            self.failed[UNPLACED].append(sequence)
        else:
            self.tally.expect(delivery.partition, delivery.offset)

    def problems(self) -> list[str]:
        """Return a line for each reason why requests were not confirmed, with their sequences."""
        return [f"not confirmed ({reason}): sequences {ranges(names)}" for reason, names in self.failed.items()]


def send(source: Source, total: int, topic: str, sender: Sender, stop: Stop) -> Sent:
    """Send all requests and wait until each is confirmed or has failed. End early if the command is stopped."""
    sent = Sent()
    with meter("delivered", total) as progress:
        for item in source.items():
            if stop:
                break
            record = Outgoing(topic, item.key, item.value, item.headers)
            sender.send(record, functools.partial(sent.on_delivery, item.sequence))
            progress.show(sent.confirmed)
        _settle(sender, sent, progress, stop)
    return sent


def _settle(sender: Sender, sent: Sent, progress: Meter, stop: Stop) -> None:
    deadline: Deadline | None = None
    while sender.flush(0.2):
        progress.show(sent.confirmed)
        now = time.monotonic()
        if stop and deadline is None:
            sender.give_up()
            deadline = Deadline.after(STOP_TIMEOUT, now)
        elif deadline is not None and deadline.passed(now):
            break
    progress.show(sent.confirmed)
