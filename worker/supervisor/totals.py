"""Adds up the metrics of a slot's processes, so that counters continue where the last process stopped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Totals = Mapping[str, Mapping[str, Any]]  # ``counters`` and ``histograms``, as in a process's snapshot

NOTHING: Totals = {"counters": {}, "histograms": {}}


def add(totals: Totals, snapshot: Mapping[str, Any]) -> Totals:
    """Return the sum of the totals and a snapshot, as a new value. A snapshot may lack either part."""
    return {
        "counters": _merged(totals["counters"], snapshot.get("counters", {}), _add_counter),
        "histograms": _merged(totals["histograms"], snapshot.get("histograms", {}), _add_histogram),
    }


def _merged(left: Mapping[str, Any], right: Mapping[str, Any], plus: Any) -> dict[str, Any]:
    merged = dict(left)
    for name, value in right.items():
        merged[name] = plus(merged[name], value) if name in merged else value
    return merged


def _add_counter(left: Any, right: Any) -> Any:
    """Add two numbers, or two numbers per label."""
    if isinstance(left, Mapping):
        return _merged(left, right, _add_counter)
    return left + right


def _add_histogram(left: list[float], right: list[float]) -> list[float]:
    return [one + other for one, other in zip(left, right, strict=True)]
