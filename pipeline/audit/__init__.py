"""``pipeline audit``: whether every planned request has exactly one committed answer."""

from pipeline.audit.job import audit, run

__all__ = ["audit", "run"]
