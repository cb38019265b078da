"""Access to Kafka for the tools, according to the settings in the environment."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from worker.kafka.cluster import Cluster
from worker.kafka.reader import Reader
from worker.kafka.sender import Sender
from worker.settings import ClientSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from worker.core.model import Partition, Record

TIMEOUT = 10.0  # seconds; the user of a command does not want to wait as long as a deployment


class Access:
    """The settings and the clients created from them. Raises SettingsError if the settings are invalid."""

    def __init__(self) -> None:
        self.settings = ClientSettings.load(os.environ)
        self._properties = self.settings.client_properties()
        self.cluster = Cluster(self._properties, min(TIMEOUT, self.settings.connect_timeout))

    def reader(self, starts: Mapping[Partition, int]) -> Reader:
        """Return a reader from the offsets ``starts``. It has the group's id, as clients need one, but does
        not join.
        """
        return Reader({**self._properties, "group.id": self.settings.group}, starts)

    def read(self, starts: Mapping[Partition, int]) -> Iterator[Record]:
        """Yield every committed record from the offsets ``starts`` to the current end."""
        with contextlib.closing(self.reader(starts)) as reader:
            yield from reader.to_end()

    def sender(self) -> Sender:
        """Return a producer."""
        return Sender(self._properties)
