"""Waiting for the answers to the requests that were sent."""

from __future__ import annotations

import contextlib
import json
import time
from typing import IO, TYPE_CHECKING

from worker.cli.answers import as_json, outcome_of
from worker.cli.console import meter
from worker.codec import MalformedError, decode_response
from worker.core.model import Partition

if TYPE_CHECKING:
    from worker.cli.access import Access
    from worker.cli.console import Stop
    from worker.cli.tally import Tally
    from worker.core.deadline import Deadline
    from worker.core.model import Record


class Answers:
    """The answers given from now on: made before the requests are sent, it misses none of theirs."""

    def __init__(self, access: Access) -> None:
        spans = access.cluster.spans(access.cluster.partitions(access.settings.ack_topic))
        self._access = access
        self._starts = {partition: span.end for partition, span in spans.items()}

    def wait(self, tally: Tally, output: IO[str] | None, deadline: Deadline, stop: Stop) -> None:
        """Read until each request has an answer and the topic is read to its end, so that duplicates show.

        Ends earlier at the deadline or when the command is stopped. While the broker is away, the wait goes on.
        """
        reader = self._access.reader(self._starts)
        with contextlib.closing(reader), meter("answered", tally.sent) as shown:
            while (tally.open or not reader.at_end) and not stop and not deadline.passed(time.monotonic()):
                for record in reader.poll(0.2):
                    _take(record, tally, output)
                if output is not None:
                    output.flush()
                shown.show(tally.answered)


def _take(record: Record, tally: Tally, output: IO[str] | None) -> None:
    try:
        response = decode_response(record.value)
    except MalformedError:
        return  # not an answer, so not ours
    origin = response.origin
    ours = tally.answer(Partition(origin.topic, origin.partition), origin.offset, outcome_of(response))
    if ours and output is not None:
        output.write(json.dumps(as_json(record, response), ensure_ascii=False) + "\n")


def summary(tally: Tally) -> list[str]:
    """What came of the requests, in a line or a few."""
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in tally.outcomes.most_common()) or "none"
    lines = [f"{tally.answered} of {tally.sent} requests answered: {outcomes}"]
    if tally.duplicates:
        lines.append(f"{tally.duplicates} duplicate answers: a request was answered more than once")
    if tally.open:
        first = [f"{partition}@{offset}" for (partition, offset), _ in zip(tally.unanswered(), range(10), strict=False)]
        more = f" and {tally.open - len(first)} more" if tally.open > len(first) else ""
        lines.append(f"{tally.open} unanswered: {', '.join(first)}{more}")
    return lines
