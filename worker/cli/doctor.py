"""``worker doctor``: finds problems before a worker starts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from worker.cli.checks import Check, Verdict, fail
from worker.errors import ExitCode, SettingsError

if TYPE_CHECKING:
    from worker.settings import Settings

_COLOURS = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "bold red"}
_NAME = 20  # columns

EPILOG = """\b
Example:
  KAFKA_BOOTSTRAP_SERVER=127.0.0.1:9092 KAFKA_REQUEST_TOPIC=requests KAFKA_ACK_TOPIC=answers \\
  KAFKA_CONSUMER_GROUP_ID=workers WORKER_HANDLER=examples.hello:greet worker doctor

\b
Prints the settings (secrets are masked), then checks the handler, the broker, the topics,
permissions, the group, sizes and times. It writes to no topic. To test the group protocol it
joins a group <group>.doctor and deletes it again.

\b
Exit codes: 0 worker run would start · 2 invalid settings · 3 the handler cannot be loaded ·
4 broker or topics cannot be used. Warnings do not change the exit code.
"""


@click.command(epilog=EPILOG, short_help="Check settings, handler and Kafka.")
def doctor() -> int:
    """Check the settings, the handler and Kafka without running a task."""
    # Imported here, so that --help needs only click.
    from worker.settings import Settings  # noqa: PLC0415

    report = Report(Console(highlight=False, soft_wrap=True))
    try:
        settings = Settings.load(os.environ)
    except SettingsError as error:
        for line in str(error).splitlines():
            report.add(fail("settings", line, ExitCode.SETTINGS_INVALID))
        return report.finish()
    report.settings(settings)

    from worker.cli.examine import examine  # noqa: PLC0415

    for check in examine(settings):
        report.add(check)
    return report.finish()


class Report:
    """Prints each check at once and keeps it for the summary."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._checks: list[Check] = []

    def settings(self, settings: Settings) -> None:
        """Print every variable with its value; defaults are dimmed."""
        rows = settings.describe()
        width = max(len(name) for name, _, _ in rows) + 1
        for name, value, is_default in rows:
            style = "dim" if is_default else ""
            self._row(Text(name, style), Text(f"{value}  (default)" if is_default else value, style), width)
        self._console.print()

    def add(self, check: Check) -> None:
        """Print a line of the report."""
        self._checks.append(check)
        head = Text.assemble((f"{check.verdict.value:<5}", _COLOURS[check.verdict]), f"{check.name:<{_NAME}}")
        self._row(head, Text(check.text), 5 + _NAME)

    def _row(self, left: Text, right: Text, width: int) -> None:
        if not self._console.is_terminal:  # one line per check, however long, for grep and logs
            left.pad_right(max(0, width - len(left)))
            self._console.print(Text.assemble(left, " ", right))
            return
        row = Table.grid(padding=(0, 1))
        row.add_column(width=width)
        row.add_column()
        row.add_row(left, right)
        self._console.print(row, soft_wrap=False)

    def finish(self) -> int:
        """Print the summary and return the exit code."""
        codes = [check.code for check in self._checks if check.verdict is Verdict.FAIL]
        warnings = sum(check.verdict is Verdict.WARN for check in self._checks)
        verdict = f"{len(codes)} failed: worker run would not start" if codes else "worker run would start"
        self._console.print(f"\n{verdict}; {warnings} warning{'' if warnings == 1 else 's'}")
        return int(min(codes, default=ExitCode.DRAINED))
