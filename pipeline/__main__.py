"""The ``pipeline`` command, also ``python -m pipeline``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    from pipeline.cli import run  # noqa: PLC0415 - whoever only imports this needs none of it

    sys.exit(run())


if __name__ == "__main__":
    main()
