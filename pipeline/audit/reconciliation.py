"""The core of the audit: which requests have exactly one answer, and which answers belong to no request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.audit import attribution, bitmap, replays
from pipeline.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame, Row

    from pipeline.audit.expected import ExpectedRequests

_DELETED = "its request was deleted"
_PLACE = ["topic", "partition", "offset"]
FEW = 1_000_000  # places, which fit into the memory of every executor


class Reconciled:
    """Requests against the answers that claim one of them (``good``: answers without a ``reason`` against them).

    Differences are computed once and cached by Spark; ``close`` frees them. Without differences, nothing else is
    computed. ``sent`` returns the records of the request topics, and is called only where a replay may explain a
    difference. ``wanted`` says which answers the caller wants as ``chosen``: the same pass over the table finds them.
    """

    def __init__(
        self,
        expected: ExpectedRequests,
        good: DataFrame,
        sent: Callable[[], DataFrame | None],
        wanted: Column | None = None,
    ) -> None:
        self._good = good
        self._kept: list[DataFrame] = []
        self._others: list[DataFrame] = []  # answers that do not count
        self.duplicate = self.surplus = self.replayed = self.unproven = self.stray = self.of_deleted = 0
        words = self._keep(bitmap.compared(expected.numbers, good))
        totals = bitmap.totals(words).collect()[0]
        if totals.repeated:
            raise JobError("the manifest has a sequence twice: it is damaged, and proves nothing")
        self.planned: int = totals.planned
        self.missing: int = totals.missing
        self.missing_requests = bitmap.numbers_of(words, "missing")
        # One more pass over the table for all that needs the answers themselves.
        wanted = F.lit(False) if wanted is None else wanted  # noqa: FBT003 - a column's value
        several = strays = good.limit(0)
        if totals.odd:
            odd = words.where(bitmap.odd())
            # Spark does not know how few they are, and would sort all answers.
            marked = bitmap.marked(good, F.broadcast(odd) if totals.odd < FEW else odd)
            looked_at = self._keep(marked.where(F.col("marked") | wanted))
            # Partitioned by request, as later steps need them. With few of them, many partitions only cost time.
            parts = 1 + self.planned // FEW
            near = self._keep(looked_at.where("marked").drop("marked").repartition(parts, "space", "number"))
            several = bitmap.claims_of(near, bitmap.claimed_again(near))
            strays = bitmap.claims_of(near, bitmap.numbers_of(words, "stray"))
            several = several.join(strays.select(*_PLACE), on=_PLACE, how="left_anti") if totals.stray else several
            self._wanted = looked_at.where(wanted).drop("marked")
        else:
            self._wanted = self._keep(good.where(wanted))
        self.doubles = good.limit(0).withColumn("place", F.lit(None).cast("string"))
        if totals.doubled:
            # Without a manifest, a replayed request is another record and therefore another request.
            self._rank(several, sent if expected.by_manifest else lambda: None)
        self.unplanned = good.limit(0).withColumn("reason", F.lit(None).cast("string"))
        if totals.stray:
            self._judge(strays, expected.deleted)

    def _keep(self, frame: DataFrame) -> DataFrame:
        self._kept.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
        return frame

    def close(self) -> None:
        """Free the cached data."""
        for frame in self._kept:
            frame.unpersist()

    def _rank(self, several: DataFrame, sent: Callable[[], DataFrame | None]) -> None:
        """Decide which of several answers to a request counts."""
        dead = not several.where(F.col("outcome") == attribution.DEAD_LETTERED).isEmpty()
        ranked = self._keep(replays.ranked(replays.with_plain(several, sent() if dead else None)))
        verdicts = replays.verdicts(ranked)
        totals = verdicts.agg(
            F.count_if(F.col("surplus") > 0).alias("duplicate"),
            F.coalesce(F.sum("surplus"), F.lit(0)).alias("surplus"),
            F.count_if("replayed").alias("replayed"),
            F.count_if("unproven").alias("unproven"),
        ).collect()[0]
        self.duplicate, self.surplus, self.replayed = totals.duplicate, totals.surplus, totals.replayed
        self.unproven = totals.unproven
        self.doubles = bitmap.claims_of(ranked, verdicts.where(F.col("surplus") > 0))
        self._others.append(ranked.where(F.col("place") != "first"))

    def _judge(self, strays: DataFrame, lows: dict[str, int]) -> None:
        """Classify answers to unplanned requests and, without a manifest, those to deleted requests."""
        spaces = [F.struct(F.lit(space), F.lit(low)) for space, low in lows.items()]
        low = F.map_from_entries(F.array(*spaces))[F.col("space")] if spaces else F.lit(None).cast("long")
        reason = F.when(F.col("number") < low, _DELETED).otherwise(attribution.NOT_PLANNED)
        judged = self._keep(strays.withColumn("reason", reason))
        self.unplanned = judged.where(F.col("reason") == attribution.NOT_PLANNED)
        self.stray = self.unplanned.count()
        self.of_deleted = judged.count() - self.stray
        self._others.append(judged)

    @property
    def answered(self) -> int:
        """Return the number of requests with exactly one answer."""
        return self.planned - self.missing - self.duplicate

    def others(self) -> list[Row]:
        """Return how many answers do not count, by ``outcome`` and ``isprocessed``."""
        return [row for frame in self._others for row in frame.groupBy("outcome", "isprocessed").count().collect()]

    @property
    def accepted(self) -> DataFrame:
        """Return the answer of each answered request: its only one, or the first of several."""
        return self._without_others(self._good)

    @property
    def chosen(self) -> DataFrame:
        """Return those of ``accepted`` that are ``wanted``."""
        return self._without_others(self._wanted)

    def _without_others(self, counted: DataFrame) -> DataFrame:
        few = self.surplus + self.replayed + self.stray + self.of_deleted < FEW
        for others in self._others:
            places = others.select(*_PLACE)
            counted = counted.join(F.broadcast(places) if few else places, on=_PLACE, how="left_anti")
        return counted
