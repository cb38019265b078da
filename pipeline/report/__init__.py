"""The report: one page of HTML that needs nothing else."""

from pipeline.report.html import page

__all__ = ["page"]
