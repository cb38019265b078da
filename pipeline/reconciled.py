"""Which requests have exactly one answer, and which answers belong to none: the proof itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.errors import JobError
from pipeline.transforms import claims, reconcile, repeats

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame, Row

    from pipeline.asked import Asked

_DELETED = "its request was deleted"
_PLACE = ["partition", "offset"]
FEW = 1_000_000  # places that every executor can hold


class Reconciled:
    """Requests against the answers that claim one of them (``good``: without a ``reason`` against it).

    What differs is computed once and kept by Spark; ``close`` frees it. Where nothing differs nothing more is computed.
    ``sent`` gives the records of the request topics, and is asked only where a replay may explain something. ``wanted``
    says of which answers the caller wants the ``chosen``: they are found in the same look at the table.
    """

    def __init__(
        self, asked: Asked, good: DataFrame, sent: Callable[[], DataFrame | None], wanted: Column | None = None
    ) -> None:
        self._good = good
        self._kept: list[DataFrame] = []
        self._others: list[DataFrame] = []  # answers that do not count
        self.duplicate = self.surplus = self.replayed = self.stray = self.of_deleted = 0
        words = self._keep(reconcile.compared(asked.numbers, good))
        totals = reconcile.totals(words).collect()[0]
        if totals.repeated:
            raise JobError("the manifest has a sequence twice: it is damaged, and proves nothing")
        self.planned: int = totals.planned
        self.missing: int = totals.missing
        self.missing_requests = reconcile.numbers_of(words, "missing")
        # One more look at the table for all that needs the answers themselves.
        wanted = F.lit(False) if wanted is None else wanted  # noqa: FBT003 - a column's value
        several = strays = good.limit(0)
        if totals.odd:
            odd = words.where(reconcile.odd())
            # Spark does not know how few they are, and would sort all answers.
            marked = reconcile.marked(good, F.broadcast(odd) if totals.odd < FEW else odd)
            looked_at = self._keep(marked.where(F.col("marked") | wanted))
            # By request, as all that follows wants them: few they may be, and then many partitions only cost time.
            parts = 1 + self.planned // FEW
            near = self._keep(looked_at.where("marked").drop("marked").repartition(parts, "space", "number"))
            several = reconcile.claims_of(near, reconcile.claimed_again(near))
            strays = reconcile.claims_of(near, reconcile.numbers_of(words, "stray"))
            several = several.join(strays.select(*_PLACE), on=_PLACE, how="left_anti") if totals.stray else several
            self._wanted = looked_at.where(wanted).drop("marked")
        else:
            self._wanted = self._keep(good.where(wanted))
        self.doubles = good.limit(0).withColumn("place", F.lit(None).cast("string"))
        if totals.doubled:
            # Without a manifest a replayed request is another record, and so another request.
            self._rank(several, sent if asked.by_manifest else lambda: None)
        self.unplanned = good.limit(0).withColumn("reason", F.lit(None).cast("string"))
        if totals.stray:
            self._judge(strays, asked.deleted)

    def _keep(self, frame: DataFrame) -> DataFrame:
        self._kept.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
        return frame

    def close(self) -> None:
        """Free what was kept."""
        for frame in self._kept:
            frame.unpersist()

    def _rank(self, several: DataFrame, sent: Callable[[], DataFrame | None]) -> None:
        """Which of several answers to a request counts."""
        dead = not several.where(F.col("outcome") == claims.DEAD_LETTERED).isEmpty()
        ranked = self._keep(repeats.ranked(repeats.with_plain(several, sent() if dead else None)))
        verdicts = repeats.verdicts(ranked)
        totals = verdicts.agg(
            F.count_if(F.col("surplus") > 0).alias("duplicate"),
            F.coalesce(F.sum("surplus"), F.lit(0)).alias("surplus"),
            F.count_if("replayed").alias("replayed"),
        ).collect()[0]
        self.duplicate, self.surplus, self.replayed = totals.duplicate, totals.surplus, totals.replayed
        self.doubles = reconcile.claims_of(ranked, verdicts.where(F.col("surplus") > 0))
        self._others.append(ranked.where(F.col("place") != "first"))

    def _judge(self, strays: DataFrame, lows: dict[str, int]) -> None:
        """Answers to what is not planned, and without a manifest those to requests that no longer stand."""
        spaces = [F.struct(F.lit(space), F.lit(low)) for space, low in lows.items()]
        low = F.map_from_entries(F.array(*spaces))[F.col("space")] if spaces else F.lit(None).cast("long")
        reason = F.when(F.col("number") < low, _DELETED).otherwise(claims.NOT_PLANNED)
        judged = self._keep(strays.withColumn("reason", reason))
        self.unplanned = judged.where(F.col("reason") == claims.NOT_PLANNED)
        self.stray = self.unplanned.count()
        self.of_deleted = judged.count() - self.stray
        self._others.append(judged)

    @property
    def answered(self) -> int:
        """Requests with exactly one answer."""
        return self.planned - self.missing - self.duplicate

    def others(self) -> list[Row]:
        """How many answers do not count, by ``outcome`` and ``isprocessed``."""
        return [row for frame in self._others for row in frame.groupBy("outcome", "isprocessed").count().collect()]

    @property
    def standing(self) -> DataFrame:
        """The one answer of each request that has one, and the first of those that have more."""
        return self._without_others(self._good)

    @property
    def chosen(self) -> DataFrame:
        """Those of ``standing`` that are ``wanted``."""
        return self._without_others(self._wanted)

    def _without_others(self, counted: DataFrame) -> DataFrame:
        few = self.surplus + self.replayed + self.stray + self.of_deleted < FEW
        for others in self._others:
            places = others.select(*_PLACE)
            counted = counted.join(F.broadcast(places) if few else places, on=_PLACE, how="left_anti")
        return counted
