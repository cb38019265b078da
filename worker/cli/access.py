"""How the tools reach Kafka: by the settings in the environment."""

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

PATIENCE = 10.0  # seconds; whoever typed a command does not want to wait as long as a deployment


class Access:
    """The settings, and clients made from them. SettingsError if those are wrong."""

    def __init__(self) -> None:
        self.settings = ClientSettings.load(os.environ)
        self._properties = self.settings.client_properties()
        self.cluster = Cluster(self._properties, min(PATIENCE, self.settings.connect_timeout))

    def reader(self, starts: Mapping[Partition, int]) -> Reader:
        """A reader of what stands from ``starts`` on. It names the group because clients must; it does not join."""
        return Reader({**self._properties, "group.id": self.settings.group}, starts)

    def read(self, starts: Mapping[Partition, int]) -> Iterator[Record]:
        """Every committed record from ``starts`` up to the present end."""
        with contextlib.closing(self.reader(starts)) as reader:
            yield from reader.to_end()

    def sender(self) -> Sender:
        """A producer."""
        return Sender(self._properties)
