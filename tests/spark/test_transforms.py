"""The pure transforms of the audit, on small tables made in code."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.audit import attribution, bitmap, ordering, replays
from pipeline.lake.schemas import RECORD
from pipeline.lake.tables import local_dataframe
from tests.spark.support import tables
from tests.spark.support.attributed import by_sequence, found
from tests.spark.support.tables import answer, at, bronze, dead_letter, failed, garbage, manifest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def requests(spark: SparkSession, rows: int) -> DataFrame:
    numbers = manifest(spark, rows).select(F.col("sequence").cast("long").alias("number"))
    return numbers.select(F.lit(attribution.ONE_SPACE).alias("space"), "number")


def test_the_kinds_of_records_are_distinguished(spark: SparkSession) -> None:
    table = bronze(spark, [answer(0), garbage(offset=5), dead_letter(2)])
    assert found(attribution.answers(table), "offset") == {(0,)}
    assert found(attribution.undecodable(table), "offset") == {(5,)}
    assert found(attribution.dead_letters(table), "topic") == {(tables.DEAD_LETTERS,)}


def test_an_answer_without_a_planned_request_has_a_reason(spark: SparkSession) -> None:
    rows = [
        answer(0),
        answer(1, job=None, request_sequence=None, key=None, key_text=None),
        answer(2, job="other"),
        answer(3),
        answer(4, request_sequence=1),
        failed(5, request_sequence=1, sequence=0),  # the worker could not read the request, nor its sequence
    ]
    reasons = found(by_sequence(bronze(spark, rows), 3), "offset", "reason")
    assert reasons == {
        (0, None),
        (1, attribution.NO_KEY),
        (2, attribution.OTHER_JOB),
        (3, attribution.NOT_PLANNED),
        (4, attribution.SEQUENCE_DIFFERS),
        (5, None),
    }


def test_answers_of_another_run_are_unexpected_unless_the_run_is_known(spark: SparkSession) -> None:
    table = bronze(spark, [answer(0, run="r1"), answer(1, run="r2"), answer(2)])
    reasons = found(attribution.by_sequence(table, tables.JOB, 3, "r1"), "offset", "reason")
    assert reasons == {(0, None), (1, attribution.OTHER_RUN), (2, None)}
    assert found(attribution.without_other_runs(table, tables.JOB, ["r2", ""]), "offset") == {(0,), (2,)}
    assert found(attribution.of_other_runs(table, tables.JOB, ["r2", ""]), "offset") == {(1,)}


def test_without_a_manifest_the_origin_identifies_the_request(spark: SparkSession) -> None:
    rows = [answer(7, partition=3), answer(1, origin_topic=None), answer(2, origin_topic="elsewhere")]
    claimed = attribution.by_origin(attribution.answers(bronze(spark, rows)), [tables.REQUESTS])
    assert found(claimed, "space", "number", "reason") == {
        (f"{tables.REQUESTS}/3", 7, None),
        ("0", 1, attribution.NO_ORIGIN),
        ("elsewhere/0", 2, attribution.OTHER_TOPIC),
    }


def test_records_of_known_jobs_are_left_to_their_own_audit(spark: SparkSession) -> None:
    table = bronze(spark, [answer(0), answer(1, job="known"), answer(2, job="unknown"), answer(3, job=None)])
    assert found(attribution.without_other_jobs(table, ["known"]), "offset") == {(0,), (2,), (3,)}
    assert found(attribution.without_other_jobs(table, []), "offset") == {(0,), (1,), (2,), (3,)}


def near(claimed: DataFrame, words: DataFrame) -> DataFrame:
    return bitmap.marked(claimed, words.where("doubled")).where("marked")


def look_into(requested: DataFrame, claimed: DataFrame) -> tuple[dict[str, int], set[Any], set[Any], set[Any]]:
    """Return the totals, and the numbers that are missing, stray and claimed again."""
    words = bitmap.compared(requested, claimed)
    again = bitmap.claimed_again(near(claimed, words))
    missing, stray = (bitmap.numbers_of(words, bits) for bits in ("missing", "stray"))
    (totals,) = bitmap.totals(words).collect()
    names = ("space", "number")
    return totals.asDict(), found(missing, *names), found(stray, *names), found(again, *names)


def test_nothing_is_found_if_requests_and_answers_agree(spark: SparkSession) -> None:
    claimed = by_sequence(bronze(spark, [answer(number) for number in range(70)]), 70)
    totals, *numbers = look_into(requests(spark, 70), claimed)
    assert totals == {"planned": 70, "missing": 0, "stray": 0, "doubled": 0, "repeated": 0, "odd": 0}
    assert numbers == [set(), set(), set()]


def test_missing_doubled_and_stray_numbers_are_named(spark: SparkSession) -> None:
    """The counts alone do not name them. The numbers are at both ends of a bitmap word, and beyond the last word."""
    answered = [0, 2, 2, *range(3, 63), 64, 65, 127, 127, 130]
    requested = requests(spark, 128).where("number not in (127)").unionAll(requests(spark, 128).where("number = 127"))
    claimed = local_dataframe(spark, [("", number) for number in answered], "space string, number long")
    totals, missing, stray, again = look_into(requested, claimed)
    assert missing == {("", number) for number in {1, 63, *range(66, 127)}}
    assert stray == {("", 130)}
    assert again == {("", 2), ("", 127)}
    assert totals == {"planned": 128, "missing": 63, "stray": 1, "doubled": 2, "repeated": 0, "odd": 3}


def test_a_missing_and_a_doubled_number_in_one_word_do_not_cancel_out(spark: SparkSession) -> None:
    claimed = by_sequence(bronze(spark, [answer(0), answer(2), answer(2, offset=9)]), 3)
    totals, missing, stray, again = look_into(requests(spark, 3), claimed)
    assert (totals["missing"], missing, stray, again) == (1, {("", 1)}, set(), {("", 2)})


def test_only_bitmap_words_that_differ_are_examined(spark: SparkSession) -> None:
    requested = spark.range(2**20).select(F.lit("").alias("space"), F.col("id").alias("number"))
    answered = requested.where("number != 40000").unionAll(requested.where("number = 50000"))
    words = bitmap.compared(requested, answered)
    assert near(answered, words).count() == 65
    totals, missing, _, again = look_into(requested, answered)
    assert (totals["planned"], missing, again) == (2**20, {("", 40000)}, {("", 50000)})


def test_the_largest_sequence_has_a_bit(spark: SparkSession) -> None:
    requested = local_dataframe(spark, [("", 2**31 - 1), ("", 2**40)], "space string, number long")
    totals, missing, *_ = look_into(requested, requested.where("number < 0"))
    assert (totals["planned"], missing) == (2, {("", 2**31 - 1), ("", 2**40)})


def test_the_same_number_in_two_spaces_is_two_requests(spark: SparkSession) -> None:
    requested = local_dataframe(spark, [("a", 1), ("b", 1)], "space string, number long")
    assert look_into(requested, requested.where("space = 'a'"))[1] == {("b", 1)}


def test_a_repeated_request_is_counted(spark: SparkSession) -> None:
    requested = local_dataframe(spark, [("a", 1), ("a", 1)], "space string, number long")
    assert look_into(requested, requested)[0]["repeated"] == 1


def ranked(frame: DataFrame, sent: DataFrame | None = None) -> DataFrame:
    return replays.ranked(replays.with_plain(by_sequence(frame, 100), sent))


def places(frame: DataFrame) -> dict[int, str]:
    return {row.offset: row.place for row in ranked(frame).collect()}


def test_the_first_answer_by_partition_and_offset_counts(spark: SparkSession) -> None:
    rows = [answer(1, offset=30), answer(1, offset=20), answer(1, offset=40)]
    assert places(bronze(spark, rows)) == {20: "first", 30: "surplus", 40: "surplus"}


def test_the_answer_of_a_replayed_dead_letter_is_superseded(spark: SparkSession) -> None:
    rows = [failed(1, offset=5), failed(1, offset=6, origin_offset=70), answer(1, offset=7, origin_offset=80)]
    table = bronze(spark, rows)
    assert places(table) == {5: "superseded", 6: "superseded", 7: "first"}
    assert found(replays.verdicts(ranked(table)), "surplus", "replayed") == {(0, True)}


@pytest.mark.parametrize(
    ("rows", "surplus"),
    [
        # The same record is dead-lettered twice, then replayed. One answer is still surplus.
        ([failed(1, offset=5), failed(1, offset=6), answer(1, offset=7, origin_offset=80)], {6}),
        # The same, but the answer of the second dead letter comes last.
        ([failed(1, offset=5), answer(1, offset=6, origin_offset=80), failed(1, offset=7)], {7}),
        # A replay that was answered twice.
        ([failed(1, offset=5), answer(1, offset=6, origin_offset=80), answer(1, offset=7, origin_offset=80)], {7}),
        # Two records of one request, both processed. A processed request is not replayed.
        ([answer(1, offset=5), answer(1, offset=6, origin_offset=80)], {6}),
        # Two records of one request, one processed and one dead-lettered.
        ([answer(1, offset=5), failed(1, offset=6, origin_offset=80)], {6}),
        ([failed(1, offset=5), failed(1, offset=6)], {6}),
    ],
)
def test_an_answer_that_no_replay_explains_is_surplus(
    spark: SparkSession, rows: list[tables.Row], surplus: set[int]
) -> None:
    found_places = places(bronze(spark, rows))
    assert {offset for offset, place in found_places.items() if place == "surplus"} == surplus


@pytest.mark.parametrize(
    ("headers", "place"),
    [
        ([("job", b"j")], "surplus"),
        ([("replay", b"1")], "first"),
        ([("x-replayed-from", b"dead/0/7")], "first"),
        (None, "surplus"),
    ],
)
def test_only_a_replay_supersedes_an_answer_if_the_request_is_known(
    spark: SparkSession, headers: Any, place: str
) -> None:
    """A request that was submitted twice is not taken for a replayed one."""
    table = bronze(spark, [failed(1, offset=5), answer(1, offset=7, origin_offset=80)])
    record = (None, None, tables.REQUESTS, 0, 80, at(0), headers)
    sent = local_dataframe(spark, [record], RECORD)
    assert {row.offset: row.place for row in ranked(table, sent).collect()}[7] == place


def late(claimed: DataFrame) -> DataFrame:
    return ordering.out_of_order(claimed, ordering.suspects(ordering.stretches(claimed, 1)))


LATE = ("origin_topic", "origin_partition", "partition", "origin_offset", "offset", "behind_offset")


def test_order_is_judged_by_the_offsets_of_requests(spark: SparkSession) -> None:
    """The sequences decrease. The offsets of the requests do not."""
    rows = [answer(9 - number, offset=number, origin_offset=number) for number in range(5)]
    assert late(by_sequence(bronze(spark, rows), 100)).count() == 0


def test_each_overtaken_request_is_named(spark: SparkSession) -> None:
    offsets = [0, 1, 5, 2, 3, 6]
    rows = [answer(origin, offset=place) for place, origin in enumerate(offsets)]
    # Another partition's requests, answered in between on the same partition of the ack topic, have their own order.
    rows.append(answer(1, offset=50, origin_partition=1))
    rows.append(answer(1, offset=51, origin_topic=None, origin_partition=None, origin_offset=None))
    found_late = found(late(by_sequence(bronze(spark, rows), 100)), "origin_offset", "offset", "behind_offset")
    assert found_late == {(2, 3, 5), (3, 4, 5)}


def stream(source: random.Random) -> list[tuple[int, int | None]]:
    """Return offsets of answers and of their requests, in order with gaps, and in some streams with faults."""
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
def test_the_stretches_find_the_same_late_answers_as_a_full_sort(spark: SparkSession, seed: int) -> None:
    source = random.Random(seed)
    rows = [
        (str(number), 0, number % 3, origin, offset, source.choice(["OK", "FAILED"]), at(offset % 7))
        for number in range(150)
        for offset, origin in stream(source)
    ]
    source.shuffle(rows)
    columns = "origin_topic string, origin_partition int, partition int, origin_offset long, offset long"
    claimed = local_dataframe(spark, rows, f"{columns}, outcome string, timestamp timestamp").persist()
    before = Window.partitionBy(*LATE[:3]).orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    every = claimed.withColumn("behind_offset", F.max("origin_offset").over(before))
    sorted_out = found(every.where("origin_offset < behind_offset"), *LATE)
    assert len(sorted_out) > 100
    assert found(late(claimed), *LATE) == sorted_out
    suspected = ordering.suspects(ordering.stretches(claimed, 1))
    assert suspected.count() < claimed.select(*LATE[:3], F.shiftright("offset", 5)).distinct().count()
    claimed.unpersist()


def test_answers_in_order_are_not_sorted(spark: SparkSession) -> None:
    """Transaction markers leave gaps in the offsets of requests and answers. Gaps do not make a stretch a suspect."""
    numbers = spark.range(20_000).select(
        F.lit("requests").alias("origin_topic"),
        F.lit(0).alias("origin_partition"),
        F.lit(0).alias("partition"),
        (F.col("id") + F.expr("id div 500")).alias("origin_offset"),
        (F.col("id") + F.expr("id div 300")).alias("offset"),
        F.lit("OK").alias("outcome"),
        F.timestamp_seconds(F.col("id") / 1000).alias("timestamp"),
    )
    assert ordering.suspects(ordering.stretches(numbers, 1)).count() == 0
