"""The entry point of a child that is a fresh interpreter, used when the handler's import makes forking unsafe."""

from __future__ import annotations

import json
import signal
from typing import NoReturn

from worker import linux
from worker.errors import HandlerError
from worker.isolation.config import Channel, ChildConfig
from worker.isolation.template import prepare


def main(configuration: str, *descriptors: str) -> NoReturn:
    """Import the handler, then run tasks. ``configuration`` is the descriptor of the configuration file."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with open(int(configuration), "rb") as file:  # noqa: PTH123 - a descriptor has no path
        file.seek(0)
        config = ChildConfig(**json.load(file))
    prepare(config)
    from worker.handlers.loader import load  # noqa: PLC0415 - after structlog was imported without rich
    from worker.isolation import child  # noqa: PLC0415

    channel = Channel(*map(int, descriptors))
    for descriptor in channel:
        linux.close_at_exec(descriptor)
    try:
        handler = load(config.handler, config.kwargs)
    except HandlerError as error:
        child.refuse(child.Reports(channel.reports, channel.wakeup), error)
    child.run(config, handler, channel)
