"""Sending requests and counting what was confirmed."""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from typing import TYPE_CHECKING

from worker.cli.console import meter
from worker.cli.tally import Tally, ranges
from worker.core.deadline import Deadline
from worker.kafka.sender import Outgoing

if TYPE_CHECKING:
    from worker.cli.console import Meter, Stop
    from worker.cli.inputs import Source
    from worker.kafka.sender import Delivery, Sender

STOP_PATIENCE = 10.0  # seconds that what is under way may take to be confirmed once the command was stopped


class Sent:
    """What became of the requests: the confirmed ones in ``tally``, the sequences of the others by reason."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.failed: dict[str, list[int]] = defaultdict(list)

    @property
    def confirmed(self) -> int:
        return self.tally.sent

    def told(self, sequence: int, delivery: Delivery) -> None:
        """The broker's word on the request of this sequence."""
        if delivery.failure is None:
            self.tally.expect(delivery.partition, delivery.offset)
        else:
            self.failed[delivery.failure].append(sequence)

    def complaints(self) -> list[str]:
        """A line for each reason why requests were not delivered, naming them."""
        return [f"not delivered ({reason}): sequences {ranges(names)}" for reason, names in self.failed.items()]


def send(source: Source, total: int, topic: str, sender: Sender, stop: Stop) -> Sent:
    """Send all requests and wait until each is confirmed or has failed; less of both if the command is stopped."""
    sent = Sent()
    with meter("delivered", total) as shown:
        for item in source.items():
            if stop:
                break
            record = Outgoing(topic, item.key, item.value, item.headers)
            sender.send(record, functools.partial(sent.told, item.sequence))
            shown.show(sent.confirmed)
        _settle(sender, sent, shown, stop)
    return sent


def _settle(sender: Sender, sent: Sent, shown: Meter, stop: Stop) -> None:
    deadline: Deadline | None = None
    while sender.flush(0.2):
        shown.show(sent.confirmed)
        now = time.monotonic()
        if stop and deadline is None:
            sender.give_up()
            deadline = Deadline.after(STOP_PATIENCE, now)
        elif deadline is not None and deadline.passed(now):
            break
    shown.show(sent.confirmed)
