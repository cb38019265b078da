"""The ``worker`` command, also ``python -m worker``. Child processes import it too: importing does nothing."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    if sys.argv[1:2] == ["run"]:
        from worker.supervisor.signals import hold_stop_signals  # noqa: PLC0415 - quicker than the next import

        hold_stop_signals()
    from worker.cli.app import run  # noqa: PLC0415 - the processes that are started need none of this

    sys.exit(run())


if __name__ == "__main__":
    main()
