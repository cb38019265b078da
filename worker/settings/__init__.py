"""The settings: read from environment variables once, checked as a whole, frozen.

Imported by the command line and the supervisor only; worker processes get a ``ProcessConfig`` of plain values.
"""

from worker.settings.model import ClientSettings, Settings

__all__ = ["ClientSettings", "Settings"]
