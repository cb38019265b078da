"""The settings: read once from environment variables, checked as a whole, frozen.

Only the command line and the supervisor import this; worker processes get a ``ProcessConfig`` of plain values.
"""

from worker.settings.model import ClientSettings, Settings

__all__ = ["ClientSettings", "Settings"]
