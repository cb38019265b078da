"""Invented results of an audit."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any

from pipeline.audit.durations import Bucket, merged, step_of, summary
from pipeline.audit.evidence import Evidence, State
from pipeline.audit.result import AuditResult, Counts
from pipeline.audit.workload import DELIVERY, GROWTH, LATENCY, WAIT, WORK

BEGIN = 1_795_270_000.0
SECONDS = 173


def buckets(values: list[float]) -> list[Bucket]:
    """Return the histogram of these values."""
    counts, sums = Counter[int](), Counter[int]()
    for value in values:
        number = math.floor(math.log(value) / math.log(GROWTH))
        counts[number] += 1
        sums[number] += value  # type: ignore[assignment]  # a sum of seconds
    return merged(Bucket(number, counts[number], sums[number], max(values)) for number in counts)


def proved(**counts: Any) -> AuditResult:
    """Return the result of a job of 200,000 requests, all answered once unless ``counts`` differ."""
    known = {"planned": 200_000, "answered": 200_000, "failed": 600, "dead_letters": 250}
    found = AuditResult(job="models", requests_from="manifest", counts=Counts(**{**known, **counts}))
    found.run = "r0123456789abcdef"
    found.evidence = [
        Evidence("manifest is complete", State.OK, "200,000 rows as planned, digest 0123456789abcdef"),
        Evidence("acks is the topic that was collected", State.OK, "id Xq1aBcDeFgHiJkLmNoPqRs"),
        Evidence("answers belong to this run", State.NOT_CHECKED, "the job was planned by a version without runs"),
    ]
    found.begin, found.end, found.step = BEGIN, BEGIN + SECONDS, step_of(SECONDS)
    found.outcomes = {"OK": 199_400, "FAILED": 300, "DEAD_LETTERED": 250, "EXPIRED": 50}
    for second in range(0, SECONDS + 1, found.step):
        found.over_time.append((BEGIN + second, "OK", 2_300))
        found.over_time.append((BEGIN + second, "FAILED", 4))
    source = random.Random(7)
    for metric, middle, width in ((LATENCY, 3.4, 0.6), (WAIT, 3.2, 0.7), (WORK, -2.2, 1.1), (DELIVERY, -4.6, 0.4)):
        found_buckets = buckets([math.exp(source.gauss(middle, width)) for _ in range(5_000)])
        found.histograms[metric] = [(bucket.number, bucket.values) for bucket in found_buckets]
        found.durations[metric] = summary(found_buckets)
    found.workers = [
        {"worker": f"worker-{n}", "answers": 25_000, "work_seconds": 160.0 - n, "cpu_seconds": 150.0 - n}
        for n in range(8)
    ]
    found.errors = [{"outcome": "FAILED", "error_type": "<b>ValueError</b>", "answers": 300, "example": "no good"}]
    return found
