"""The ``worker`` command, also ``python -m worker``. Child processes import it too: importing does nothing."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    from worker.cli.app import run  # noqa: PLC0415 - the processes that are started need none of this

    sys.exit(run())


if __name__ == "__main__":
    main()
