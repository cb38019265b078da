"""The site of one test: its topics, group and replicas, and the checks that apply to all tests."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from typing import TYPE_CHECKING

from tests.kafka.support import topics
from tests.kafka.support.journal import Journal
from tests.kafka.support.replica import HANDLERS, Replica
from tests.kafka.support.topics import Reader, Record, Sent, Submission
from tests.kafka.support.waiting import WAIT_LIMIT, until

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.kafka_broker import Broker

SHOWN = 10  # missing ids that a failure names


class Site:
    """Separate topics, group and journal. ``close`` ends the replicas that were started here."""

    def __init__(
        self, broker: Broker, folder: Path, *, partitions: int = 2, answers: int = 2, **variables: str
    ) -> None:
        self.bootstrap = broker.bootstrap
        self.folder = folder / f"site-{uuid.uuid4().hex[:6]}"
        self.folder.mkdir()
        self.answer_partitions = answers
        self.requests = broker.topic(partitions)
        self.ack, self.dead = broker.topics(2, answers)
        self.group = f"g-{uuid.uuid4().hex[:12]}"
        self.journal = Journal(self.folder / "journal")
        self.replicas: list[Replica] = []
        self.sent: list[Sent] = []
        self.answers = Reader(self.bootstrap, self.ack, answers)
        self._variables = variables

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of a replica of this site."""
        return {
            "KAFKA_BOOTSTRAP_SERVER": self.bootstrap,
            "KAFKA_REQUEST_TOPIC": self.requests,
            "KAFKA_ACK_TOPIC": self.ack,
            "KAFKA_DEAD_LETTER_TOPIC": self.dead,
            "KAFKA_CONSUMER_GROUP_ID": self.group,
            "WORKER_HANDLER": "work:handle",
            "WORKER_HANDLER_KWARGS": json.dumps({"journal": str(self.journal.path)}),
            "WORKER_PROCESSES": "1",
            "WORKER_RETRY_BACKOFF": "100ms..200ms",
            **self._variables,
        }

    def start(self, cwd: Path | str = HANDLERS, **variables: str) -> Replica:
        """Start a replica without waiting for it."""
        replica = Replica(self.folder, {**self.environment, **variables}, cwd)
        self.replicas.append(replica)
        return replica

    def start_in_a_hurry(self, **variables: str) -> Replica:
        """Start a replica whose handler skips all waits that requests ask for."""
        kwargs = json.dumps({"journal": str(self.journal.path), "hurry": True})
        return self.start(WORKER_HANDLER_KWARGS=kwargs, **variables)

    def submit(self, submissions: Iterable[Submission]) -> list[Sent]:
        """Send requests. ``finish`` expects an answer to each."""
        sent = topics.submit(self.bootstrap, self.requests, submissions)
        self.sent += sent
        return sent

    # -- results

    def committed(self) -> dict[int, int]:
        """Return the group's offsets."""
        return topics.committed(self.bootstrap, self.group, self.requests)

    def counts(self) -> Counter[tuple[str, int, int]]:
        """Return how often each request was answered so far."""
        return Counter(answer.origin for answer in self.answers.read())

    def answer_to(self, sent: Sent) -> Record:
        """Return the only answer to a request among those read so far."""
        (answer,) = [one for one in self.answers.records if one.origin == sent[:3]]
        return answer

    def wait_answered(self, sent: Iterable[Sent] | None = None, seconds: float = WAIT_LIMIT) -> None:
        """Wait until each of these requests (by default all) has an answer."""
        missing = {one[:3] for one in (self.sent if sent is None else sent)}

        def done() -> bool:
            missing.difference_update(self.counts())
            return not missing

        until(done, lambda: f"{len(missing)} unanswered: {sorted(missing)[:SHOWN]}\n{self.tails()}", seconds)

    def wait_committed(self, seconds: float = WAIT_LIMIT) -> None:
        """Wait until the group has reached the end of the topic, past any markers."""
        ends = topics.ends(self.bootstrap, self.requests)
        until(
            lambda: self.committed() == ends, lambda: f"committed {self.committed()} of {ends}\n{self.tails()}", seconds
        )

    def wait_running(self, count: int, seconds: float = WAIT_LIMIT) -> dict[tuple[int, int], int]:
        """Wait until ``count`` tasks run at once. Return the pid of each by partition and offset."""
        return (
            until(
                lambda: len(running := self.journal.running()) == count and running,
                lambda: f"{self.journal.running()} instead of {count} tasks run\n{self.tails()}",
                seconds,
            )
            or {}
        )

    def finish(self, *, twice: Iterable[Sent] = (), seconds: float = WAIT_LIMIT) -> None:
        """Wait until all is answered and committed, stop the replicas, and check that each request has one answer.

        Requests in ``twice`` may have several answers.
        """
        self.wait_answered(seconds=seconds)
        self.wait_committed()
        self.stop()
        self.answers.read_all()
        allowed = {one[:3] for one in twice}
        counts = self.counts()
        assert set(counts) == {one[:3] for one in self.sent}, "answers to what was never asked"
        assert {origin for origin, count in counts.items() if count > 1} <= allowed, "answered more than once"

    def stop(self) -> None:
        """Send SIGTERM to every running replica. Each must drain and exit with 0."""
        running = [replica for replica in self.replicas if replica.process.poll() is None]
        assert [replica.stop() for replica in running] == [0] * len(running), self.tails()

    def started_once(self) -> None:
        """Check that every request was started exactly once."""
        assert self.journal.starts() == Counter({(one.partition, one.offset): 1 for one in self.sent}), self.tails()

    def tails(self) -> str:
        """Return the last lines of all replicas."""
        return "\n".join(replica.tail() for replica in self.replicas)

    def close(self) -> None:
        """End all replicas and clients."""
        for replica in self.replicas:
            replica.clean_up()
        self.answers.close()
