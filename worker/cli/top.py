"""``worker top``: shows the long tasks of the whole group live, with rates and estimates."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.live import Live

from worker.cli.access import Access
from worker.cli.console import INTERRUPTED, WIDTH, stoppable
from worker.cli.state_topic import StateTopic
from worker.cli.top_page import View, page, view_of
from worker.cli.top_rates import Rates
from worker.state.table import Kind

if TYPE_CHECKING:
    from rich.text import Text

    from worker.cli.console import Stop

INTERVAL = 0.5  # seconds between two pages
_ALL = 10_000  # lines of a page that is not on a terminal

EPILOG = """\b
Example:
  worker top

\b
Shows every long task of the group until Ctrl-C: the run time of its attempt, its progress, the
rate over the last minute, and the time left at this rate. Handlers report progress with
context.progress(fraction, message). The line "total" shows the mean progress and the longest time
left. If the output is not a terminal, the command prints the page once.

\b
Exit codes: 0 printed once · 2 wrong settings · 4 Kafka or the topic is not reachable · 130 Ctrl-C.
"""


@click.command(epilog=EPILOG, short_help="Watch the long tasks of the whole group.")
def top() -> int:
    """Watch the long tasks of the whole group: progress, rate, and estimated end."""
    with contextlib.closing(Watcher(Access())) as watcher, stoppable() as stop:
        watcher.read(stop)
        if not stop and not sys.stdout.isatty():
            Console(width=WIDTH).print(watcher.page(WIDTH, _ALL))
            return 0
        if not stop:
            _live(watcher, stop)
    return INTERRUPTED


def _live(watcher: Watcher, stop: Stop) -> None:
    """Show page after page on the terminal's alternate screen. The last page stays on the normal screen."""
    console = Console()
    with Live(console=console, auto_refresh=False, screen=True) as live:
        while not stop:
            live.update(watcher.page(*console.size), refresh=True)
            watcher.follow(INTERVAL)
    console.print(watcher.page(*console.size))


class Watcher:
    """Follows the state topic."""

    def __init__(self, access: Access) -> None:
        self._settings = access.settings
        self._topic = StateTopic(access)
        self._rates = Rates()

    def read(self, stop: Stop) -> None:
        """Read to the end, unless stopped."""
        self._topic.read(stop)
        for state in self._topic.table.states.values():
            self._rates.add(state)

    def follow(self, seconds: float) -> None:
        """Process the records that are written in the next ``seconds``."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            for change in self._topic.poll(left):
                state = self._topic.table.states.get(change.origin)  # None: a later record has removed it
                if change.kind is Kind.STATE and state is not None:
                    self._rates.add(state)

    def page(self, width: int, height: int) -> Text:
        """Return the current page."""
        states = self._topic.states()
        self._rates.keep(self._topic.table.states)
        now = time.time()
        clock = time.strftime("%H:%M:%S", time.localtime(now))
        view: View = view_of(self._settings.group, states, self._rates, now, clock)
        return page(view, width, height)

    def close(self) -> None:
        """Free the client."""
        self._topic.close()
