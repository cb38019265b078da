"""Waits for the answers to the requests that were sent.

``worker.Client`` takes the first answer to each request and keeps a future for it. ``worker submit --wait`` also has to
find second answers, and keeps one bit per request so that tables of millions fit. So it has a separate reader.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from typing import IO, TYPE_CHECKING

from worker.cli.answers import as_json, outcome_of
from worker.cli.console import count, meter
from worker.cli.dead_letters import place_of
from worker.codec import MalformedError
from worker.core.model import Partition
from worker.formats import decode_answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.cli.access import Access
    from worker.cli.console import Stop
    from worker.cli.tally import Tally
    from worker.core.deadline import Deadline
    from worker.core.model import Record


class Answers:
    """The answers from now on. Create it before the requests are sent, so that it misses none."""

    def __init__(self, access: Access) -> None:
        spans = access.cluster.spans(access.cluster.partitions(access.settings.ack_topic))
        self._access = access
        self._starts = {partition: span.end for partition, span in spans.items()}

    def wait(self, tally: Tally, output: IO[str] | None, deadline: Deadline, stop: Stop) -> None:
        """Read until each request has an answer, and then to the topic's current end, to find duplicates.

        Ends early at the deadline or when the command is stopped. Continues waiting during a broker outage.
        """
        with contextlib.closing(self._access.reader(self._starts)) as reader, meter("answered", tally.sent) as progress:

            def read_until(done: Callable[[], bool]) -> None:
                while not (done() or stop or deadline.passed(time.monotonic())):
                    for record in reader.poll(0.2):
                        _take(record, tally, output)
                    if output is not None:
                        output.flush()
                    progress.show(tally.answered)

            read_until(lambda: not tally.open)
            reader.mark_ends()
            read_until(lambda: reader.at_end)


def _take(record: Record, tally: Tally, output: IO[str] | None) -> None:
    try:
        response = decode_answer(record.value)
    except MalformedError:
        return  # not an answer
    origin = response.origin
    ours = tally.answer(Partition(origin.topic, origin.partition), origin.offset, outcome_of(response))
    if ours and output is not None:
        output.write(json.dumps(as_json(record, response), ensure_ascii=False) + "\n")


def summary(tally: Tally) -> list[str]:
    """Return the outcomes of the requests, in a few lines."""
    outcomes = ", ".join(f"{number} {outcome}" for outcome, number in tally.outcomes.most_common()) or "none"
    lines = [f"{tally.answered} of {tally.sent} requests answered: {outcomes}"]
    if tally.duplicates:
        lines.append(f"{count(tally.duplicates, 'duplicate answer')}: a request was answered more than once")
    if tally.open:
        first = [place_of(*origin) for origin in itertools.islice(tally.unanswered(), 10)]
        more = f" and {tally.open - len(first)} more" if tally.open > len(first) else ""
        lines.append(f"{tally.open} unanswered: {', '.join(first)}{more}")
    return lines
