"""The report: a single HTML page without external files."""

from pipeline.report.html import page

__all__ = ["page"]
