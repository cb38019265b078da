"""The metrics of the replica for Prometheus, under the names in ``worker.vocabulary``."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from worker.vocabulary import BUCKETS, METRICS, Metric

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from worker.supervisor.slots import Reading

_BOUNDS = [*(str(bound) for bound in BUCKETS), "+Inf"]


class ReplicaCollector(Collector):
    """Reads all slots at every scrape. Any thread."""

    def __init__(self, readings: Callable[[], list[Reading]]) -> None:
        self._readings = readings

    def collect(self) -> Iterator[Family]:
        """Yield every metric of the vocabulary, with a sample for each slot that has one."""
        readings = self._readings()
        rows = [(str(reading.slot), _values(reading)) for reading in readings]
        for metric in METRICS:
            if metric.name == "processes":
                alive = sum(reading.pid is not None for reading in readings)
                yield GaugeMetricFamily("worker_processes", metric.meaning, value=alive)
                continue
            family = _family(metric)
            for slot, values in rows:
                if metric.name in values:
                    _add(family, metric, slot, values[metric.name])
            yield family


def _values(reading: Reading) -> dict[str, Any]:
    """Return the values of a slot by metric name: those of its process and those of the supervisor."""
    up = reading.pid is not None
    supervised: dict[str, Any] = {"process_restarts_total": reading.restarts, "process_up": int(up)}
    if up:
        supervised |= reading.snapshot.get("gauges", {})
        supervised |= {"state": reading.stamp.state, "assigned_partitions": reading.stamp.assigned}
        supervised |= {"process_resident_bytes": reading.usage.resident_bytes}
        supervised |= {"process_cpu_seconds": reading.usage.cpu_seconds}
    return {**reading.totals["counters"], **reading.totals["histograms"], **supervised}


def _family(metric: Metric) -> Family:
    name = f"worker_{metric.name}"
    labels = ["slot", metric.label] if metric.label else ["slot"]
    if metric.kind == "counter":
        return CounterMetricFamily(name, metric.meaning, labels=labels)
    if metric.kind == "gauge":
        return GaugeMetricFamily(name, metric.meaning, labels=labels)
    return HistogramMetricFamily(name, metric.meaning, labels=labels)


def _add(family: Any, metric: Metric, slot: str, value: Any) -> None:
    """Add the value of a slot: a number, a number per label, or a histogram row (counts per bucket, then the sum)."""
    if metric.kind == "histogram":
        counts = itertools.accumulate(value[:-1])
        family.add_metric([slot], buckets=list(zip(_BOUNDS, counts, strict=True)), sum_value=value[-1])
    elif metric.label:
        for label, number in value.items():
            family.add_metric([slot, label], number)
    else:
        family.add_metric([slot], value)
