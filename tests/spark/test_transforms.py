"""The pure transforms, on small tables made in code."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.schemas import RECORD
from pipeline.table_io import table_of
from pipeline.transforms import claims, order, reconcile, repeats, workload
from tests.spark.support import tables
from tests.spark.support.tables import answer, at, bronze, failed, garbage, letter, manifest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def by_sequence(frame: DataFrame, rows: int) -> DataFrame:
    return claims.by_sequence(claims.answers(frame), tables.JOB, rows)


def by_sequence_of_all(frame: DataFrame) -> DataFrame:
    return claims.by_sequence(frame, tables.JOB, 100)


def requests(spark: SparkSession, rows: int) -> DataFrame:
    numbers = manifest(spark, rows).select(F.col("sequence").cast("long").alias("number"))
    return numbers.select(F.lit(claims.ONE_SPACE).alias("space"), "number")


def found(frame: DataFrame, *columns: str) -> set[tuple[Any, ...]]:
    return {tuple(row) for row in frame.select(*columns).collect()}


def test_the_kinds_of_records_are_told_apart(spark: SparkSession) -> None:
    table = bronze(spark, [answer(0), garbage(offset=5), letter(2)])
    assert found(claims.answers(table), "offset") == {(0,)}
    assert found(claims.undecodable(table), "offset") == {(5,)}
    assert found(claims.dead_letters(table), "topic") == {(tables.LETTERS,)}


def test_an_answer_without_a_planned_request_says_why(spark: SparkSession) -> None:
    rows = [
        answer(0),
        answer(1, job=None, request_sequence=None, key=None, key_text=None),
        answer(2, job="other"),
        answer(3),
        answer(4, request_sequence=1),
        failed(5, request_sequence=1, sequence=0),  # nobody could read the request, so its sequence is not known
    ]
    reasons = found(by_sequence(bronze(spark, rows), 3), "offset", "reason")
    assert reasons == {
        (0, None),
        (1, claims.NO_KEY),
        (2, claims.OTHER_JOB),
        (3, claims.NOT_PLANNED),
        (4, claims.SEQUENCE_DIFFERS),
        (5, None),
    }


def test_without_a_manifest_the_origin_is_what_counts(spark: SparkSession) -> None:
    rows = [answer(7, partition=3), answer(1, origin_topic=None), answer(2, origin_topic="elsewhere")]
    claimed = claims.by_origin(claims.answers(bronze(spark, rows)), [tables.REQUESTS])
    assert found(claimed, "space", "number", "reason") == {
        (f"{tables.REQUESTS}/3", 7, None),
        ("0", 1, claims.NO_ORIGIN),
        ("elsewhere/0", 2, claims.OTHER_TOPIC),
    }


def test_records_of_known_jobs_are_left_to_their_own_audit(spark: SparkSession) -> None:
    table = bronze(spark, [answer(0), answer(1, job="known"), answer(2, job="unknown"), answer(3, job=None)])
    assert found(claims.without_other_jobs(table, ["known"]), "offset") == {(0,), (2,), (3,)}
    assert found(claims.without_other_jobs(table, []), "offset") == {(0,), (1,), (2,), (3,)}


def near(claimed: DataFrame, words: DataFrame) -> DataFrame:
    return reconcile.marked(claimed, words.where("doubled")).where("marked")


def look_into(asked: DataFrame, claimed: DataFrame) -> tuple[dict[str, int], set[Any], set[Any], set[Any]]:
    """The totals, and the numbers that are missing, stray and claimed again."""
    words = reconcile.compared(asked, claimed)
    again = reconcile.claimed_again(near(claimed, words))
    missing, stray = (reconcile.numbers_of(words, bits) for bits in ("missing", "stray"))
    (totals,) = reconcile.totals(words).collect()
    names = ("space", "number")
    return totals.asDict(), found(missing, *names), found(stray, *names), found(again, *names)


def test_where_all_agree_nothing_is_found(spark: SparkSession) -> None:
    claimed = by_sequence(bronze(spark, [answer(number) for number in range(70)]), 70)
    totals, *numbers = look_into(requests(spark, 70), claimed)
    assert totals == {"planned": 70, "missing": 0, "stray": 0, "doubled": 0, "repeated": 0, "odd": 0}
    assert numbers == [set(), set(), set()]


def test_missing_and_doubled_and_stray_are_named(spark: SparkSession) -> None:
    """As many answers as requests, and yet not one for each; at both ends of a word, and beyond the last."""
    answered = [0, 2, 2, *range(3, 63), 64, 65, 127, 127, 130]
    asked = requests(spark, 128).where("number not in (127)").unionAll(requests(spark, 128).where("number = 127"))
    claimed = table_of(spark, [("", number) for number in answered], "space string, number long")
    totals, missing, stray, again = look_into(asked, claimed)
    assert missing == {("", number) for number in {1, 63, *range(66, 127)}}
    assert stray == {("", 130)}
    assert again == {("", 2), ("", 127)}
    assert totals == {"planned": 128, "missing": 63, "stray": 1, "doubled": 2, "repeated": 0, "odd": 3}


def test_a_missing_and_a_double_in_one_word_do_not_cancel_out(spark: SparkSession) -> None:
    claimed = by_sequence(bronze(spark, [answer(0), answer(2), answer(2, offset=9)]), 3)
    totals, missing, stray, again = look_into(requests(spark, 3), claimed)
    assert (totals["missing"], missing, stray, again) == (1, {("", 1)}, set(), {("", 2)})


def test_only_words_that_differ_are_looked_into(spark: SparkSession) -> None:
    asked = spark.range(2**20).select(F.lit("").alias("space"), F.col("id").alias("number"))
    answered = asked.where("number != 40000").unionAll(asked.where("number = 50000"))
    words = reconcile.compared(asked, answered)
    assert near(answered, words).count() == 65
    totals, missing, _, again = look_into(asked, answered)
    assert (totals["planned"], missing, again) == (2**20, {("", 40000)}, {("", 50000)})


def test_the_greatest_sequence_has_its_bit(spark: SparkSession) -> None:
    asked = table_of(spark, [("", 2**31 - 1), ("", 2**40)], "space string, number long")
    totals, missing, *_ = look_into(asked, asked.where("number < 0"))
    assert (totals["planned"], missing) == (2, {("", 2**31 - 1), ("", 2**40)})


def test_the_same_number_in_two_spaces_is_two_requests(spark: SparkSession) -> None:
    asked = table_of(spark, [("a", 1), ("b", 1)], "space string, number long")
    assert look_into(asked, asked.where("space = 'a'"))[1] == {("b", 1)}


def test_a_repeated_request_shows(spark: SparkSession) -> None:
    asked = table_of(spark, [("a", 1), ("a", 1)], "space string, number long")
    assert look_into(asked, asked)[0]["repeated"] == 1


def ranked(frame: DataFrame, sent: DataFrame | None = None) -> DataFrame:
    return repeats.ranked(repeats.with_plain(by_sequence(frame, 100), sent))


def places(frame: DataFrame) -> dict[int, str]:
    return {row.offset: row.place for row in ranked(frame).collect()}


def test_the_first_by_partition_and_offset_counts(spark: SparkSession) -> None:
    rows = [answer(1, offset=30), answer(1, offset=20), answer(1, offset=40)]
    assert places(bronze(spark, rows)) == {20: "first", 30: "surplus", 40: "surplus"}


def test_a_replayed_dead_letter_is_superseded(spark: SparkSession) -> None:
    rows = [failed(1, offset=5), failed(1, offset=6, origin_offset=70), answer(1, offset=7, origin_offset=80)]
    table = bronze(spark, rows)
    assert places(table) == {5: "superseded", 6: "superseded", 7: "first"}
    assert found(repeats.verdicts(ranked(table)), "surplus", "replayed") == {(0, True)}


@pytest.mark.parametrize(
    ("rows", "surplus"),
    [
        # The same record dead-lettered twice, then replayed: one answer too many all the same.
        ([failed(1, offset=5), failed(1, offset=6), answer(1, offset=7, origin_offset=80)], {6}),
        # The same, its second dead letter's answer coming last.
        ([failed(1, offset=5), answer(1, offset=6, origin_offset=80), failed(1, offset=7)], {7}),
        # A replay that was answered twice.
        ([failed(1, offset=5), answer(1, offset=6, origin_offset=80), answer(1, offset=7, origin_offset=80)], {7}),
        # Two records of one request, both processed: nobody replays what went well.
        ([answer(1, offset=5), answer(1, offset=6, origin_offset=80)], {6}),
        # Processed, and a second record of it dead-lettered.
        ([answer(1, offset=5), failed(1, offset=6, origin_offset=80)], {6}),
        ([failed(1, offset=5), failed(1, offset=6)], {6}),
    ],
)
def test_what_no_replay_explains_is_surplus(spark: SparkSession, rows: list[tables.Row], surplus: set[int]) -> None:
    found_places = places(bronze(spark, rows))
    assert {offset for offset, place in found_places.items() if place == "surplus"} == surplus


@pytest.mark.parametrize(
    ("headers", "place"), [([("job", b"j")], "surplus"), ([("replay", b"1")], "first"), (None, "surplus")]
)
def test_only_a_replay_supersedes_where_the_request_can_be_seen(spark: SparkSession, headers: Any, place: str) -> None:
    """A request that was submitted twice is not taken for a replayed one."""
    table = bronze(spark, [failed(1, offset=5), answer(1, offset=7, origin_offset=80)])
    record = (None, None, tables.REQUESTS, 0, 80, at(0), headers)
    sent = table_of(spark, [record], RECORD)
    assert {row.offset: row.place for row in ranked(table, sent).collect()}[7] == place


def late(claimed: DataFrame) -> DataFrame:
    return order.out_of_order(claimed, order.suspects(order.stretches(claimed, 1)))


LATE = ("origin_topic", "origin_partition", "partition", "origin_offset", "offset", "behind_offset")


def test_order_is_judged_by_the_offsets_of_requests(spark: SparkSession) -> None:
    """The sequences run backwards, the requests' offsets do not."""
    rows = [answer(9 - number, offset=number, origin_offset=number) for number in range(5)]
    assert late(by_sequence(bronze(spark, rows), 100)).count() == 0


def test_who_was_overtaken_is_named(spark: SparkSession) -> None:
    offsets = [0, 1, 5, 2, 3, 6]
    rows = [answer(origin, offset=place) for place, origin in enumerate(offsets)]
    # Another partition's requests, answered in between on the same partition of the ack topic, have their own order.
    rows.append(answer(1, offset=50, origin_partition=1))
    rows.append(answer(1, offset=51, origin_topic=None, origin_partition=None, origin_offset=None))
    found_late = found(late(by_sequence(bronze(spark, rows), 100)), "origin_offset", "offset", "behind_offset")
    assert found_late == {(2, 3, 5), (3, 4, 5)}


def stream(source: random.Random) -> list[tuple[int, int | None]]:
    """Offsets of answers and of their requests: in order with gaps, and then perhaps with something wrong."""
    count, sparse = source.choice([1, 2, 31, 32, 33, 64, 200]), source.choice([1, 1, 2, 70])
    offset, origin = source.choice([0, 1, 60, 2**40]), source.choice([0, 5, 63, 2**16 - 30, 2**62, -(2**63)])
    pairs: list[tuple[int, int | None]] = []
    for _ in range(count):
        offset += source.randint(1, source.choice([1, sparse]))
        origin += source.randint(1, source.choice([1, 1, sparse]))
        pairs.append((offset, origin))
    for _ in range(source.choice([0, 0, 1, 1, 3])):
        one, other = source.randrange(count), source.randrange(count)
        change = source.choice(["swap", "near", "again", "far", "none"])
        if change == "near":
            other = min(one + 1, count - 1)
        if change in ("swap", "near"):
            origins = pairs[one][1], pairs[other][1]
            pairs[one], pairs[other] = (pairs[one][0], origins[1]), (pairs[other][0], origins[0])
        else:
            strange = {"again": pairs[other][1], "far": source.choice([-(2**63), 2**63 - 1]), "none": None}[change]
            pairs[one] = (pairs[one][0], strange)
    return pairs


@pytest.mark.parametrize("seed", range(4))
def test_the_stretches_find_what_sorting_everything_finds(spark: SparkSession, seed: int) -> None:
    source = random.Random(seed)
    rows = [
        (str(number), 0, number % 3, origin, offset, source.choice(["OK", "FAILED"]), at(offset % 7))
        for number in range(150)
        for offset, origin in stream(source)
    ]
    source.shuffle(rows)
    columns = "origin_topic string, origin_partition int, partition int, origin_offset long, offset long"
    claimed = table_of(spark, rows, f"{columns}, outcome string, timestamp timestamp").persist()
    before = Window.partitionBy(*LATE[:3]).orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    every = claimed.withColumn("behind_offset", F.max("origin_offset").over(before))
    sorted_out = found(every.where("origin_offset < behind_offset"), *LATE)
    assert len(sorted_out) > 100
    assert found(late(claimed), *LATE) == sorted_out
    suspected = order.suspects(order.stretches(claimed, 1))
    assert suspected.count() < claimed.select(*LATE[:3], F.shiftright("offset", 5)).distinct().count()
    claimed.unpersist()


def test_answers_in_order_are_not_sorted(spark: SparkSession) -> None:
    """Markers of transactions on either side leave gaps, and are no reason to look closer."""
    numbers = spark.range(20_000).select(
        F.lit("requests").alias("origin_topic"),
        F.lit(0).alias("origin_partition"),
        F.lit(0).alias("partition"),
        (F.col("id") + F.expr("id div 500")).alias("origin_offset"),
        (F.col("id") + F.expr("id div 300")).alias("offset"),
        F.lit("OK").alias("outcome"),
        F.timestamp_seconds(F.col("id") / 1000).alias("timestamp"),
    )
    assert order.suspects(order.stretches(numbers, 1)).count() == 0


def test_a_histogram_adds_up_and_is_within_one_percent(spark: SparkSession) -> None:
    rows = [answer(number, started_at=at(0), finished_at=at(0.001 * (number + 1))) for number in range(100)]
    profiled = workload.profile(by_sequence(bronze(spark, rows), 100))
    buckets = workload.work_histogram(profiled).collect()
    assert sum(bucket["count"] for bucket in buckets) == 100
    assert sum(bucket["seconds"] for bucket in buckets) == pytest.approx(5.05)
    for bucket in buckets:
        middle = workload.GROWTH ** (bucket["bucket"] + 0.5)
        assert bucket["seconds"] / bucket["count"] == pytest.approx(middle, rel=0.0101)


def test_negative_durations_count_as_the_least(spark: SparkSession) -> None:
    """The clocks of a worker and of the broker differ."""
    table = bronze(spark, [answer(1, started_at=at(2), finished_at=at(1)), answer(2, started_at=None)])
    (bucket,) = workload.work_histogram(workload.profile(by_sequence(table, 100))).collect()
    assert bucket["count"] == 1
    assert workload.GROWTH ** bucket["bucket"] <= workload.LEAST < workload.GROWTH ** (bucket["bucket"] + 1)


def test_waits_are_known_where_the_request_is(spark: SparkSession) -> None:
    table = by_sequence(bronze(spark, [answer(1), answer(2)]), 100)
    sent = table_of(
        spark, [(tables.REQUESTS, 0, 1, at(0))], "topic string, partition int, offset long, timestamp timestamp"
    )
    columns = [workload.WAIT, workload.LATENCY, workload.DELIVERY]
    assert found(workload.with_waits(table, sent), *columns) == {(1.0, 3.0, 1.0), (None, None, 1.0)}
    assert found(workload.with_waits(table, None), *columns) == {(None, None, 1.0)}
    assert found(workload.histograms(workload.with_waits(table, sent)), "metric", "count", "seconds", "longest") == {
        (workload.WAIT, 1, 1.0, 1.0),
        (workload.LATENCY, 1, 3.0, 3.0),
        (workload.DELIVERY, 2, 2.0, 1.0),
    }


def test_a_sample_takes_the_same_records_on_both_sides(spark: SparkSession) -> None:
    table = bronze(spark, [answer(number) for number in range(400)])
    answered = found(table.where(workload.sampled(4, "origin_offset")), "origin_offset")
    assert 50 < len(answered) < 150
    assert answered == found(table.where(workload.sampled(4, "offset")), "offset")
    assert table.where(workload.sampled(1, "offset")).count() == 400


def test_one_look_gives_kinds_workers_and_outcomes(spark: SparkSession) -> None:
    rows = [answer(0), answer(1), failed(2) | {"worker": "w2"}, failed(3, "EXPIRED"), answer(500)]
    table = by_sequence_of_all(bronze(spark, [*rows, garbage(offset=900), letter(2)]))
    profiled = workload.profile(table)
    assert found(workload.by_outcome(profiled), "kind", "outcome", "records") == {
        (workload.ANSWERED, "OK", 2),
        (workload.ANSWERED, "DEAD_LETTERED", 1),
        (workload.ANSWERED, "EXPIRED", 1),
        (workload.UNEXPECTED, "OK", 1),
        (workload.UNDECODABLE, None, 1),
        (workload.LETTER, None, 1),
    }
    workers = {row.worker: row for row in workload.by_worker(profiled).collect()}
    assert (workers["w1"].answers, workers["w1"].work_seconds, workers["w1"].cpu_seconds) == (3, 3.0, 1.5)
    (good,) = workload.by_outcome(workload.answered(profiled)).where("isprocessed").collect()
    assert good["last"] - good["first"] == at(1) - at(0)


def test_failures_and_answers_over_time(spark: SparkSession) -> None:
    table = by_sequence(bronze(spark, [answer(0), answer(1), failed(2), failed(3, "EXPIRED")]), 100)
    assert found(workload.by_error(workload.failures(table)), "outcome", "error_type", "answers", "example") == {
        ("DEAD_LETTERED", "ValueError", 1, "no good"),
        ("EXPIRED", "ValueError", 1, "no good"),
    }
    begin = at(2).timestamp()
    assert found(workload.over_time(order.stretches(table, 2)), "begin", "outcome", "answers") == {
        (begin, "OK", 2),
        (begin + 2, "DEAD_LETTERED", 1),
        (begin + 2, "EXPIRED", 1),
    }
