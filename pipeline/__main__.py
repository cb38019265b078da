"""The ``pipeline`` command, also ``python -m pipeline``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    from pipeline.cli.main import run  # noqa: PLC0415 - the import is slow, and only this function needs it

    sys.exit(run())


if __name__ == "__main__":
    main()
