"""A handler whose module imports scikit-learn, for the memory of processes with large imports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sklearn.linear_model import LinearRegression

if TYPE_CHECKING:
    from worker.codec import Request


def fit(request: Request, context: object) -> str:  # noqa: ARG001 - as the contract calls it
    """Fit a line through two points, and answer with its slope."""
    return f"{LinearRegression().fit([[0.0], [1.0]], [0.0, 2.0]).coef_[0]:.3f}"
