"""The plan of a job: a table becomes a manifest, dense and in order. An unfit table is refused with one line."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.errors import JobError
from pipeline.jobs import plan as plans
from pipeline.jobs.plan import default_parts, plan
from pipeline.jobs.submit import unfinished
from pipeline.lake.manifest import Manifest, digests_of, key_digest_of
from pipeline.lake.schemas import MANIFEST
from pipeline.lake.tables import local_dataframe
from pipeline.settings import Common, Source

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


@pytest.fixture
def lake(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


@pytest.fixture
def make(spark: SparkSession, lake: str) -> Callable[..., tuple[Manifest, bool]]:
    """Return a function that plans a job from a file."""

    def planned(uri: str, *, job: str = "j", write: bool = True, **source: Any) -> tuple[Manifest, bool]:
        described = Source(**{"uri": uri, "id": "id", "payload": "payload", **source})
        return plan(spark, Common(job=job, lake=lake), described, write=write)

    return planned


def parquet(tmp_path: Path, **columns: Any) -> str:
    """Write a file of several row groups, so that Spark may split it. Return its path."""
    path = tmp_path / f"in-{len(list(tmp_path.iterdir()))}.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=100)
    return str(path)


def rows_of(lake: str, job: str = "j") -> list[dict[str, Any]]:
    """Return the manifest as another Parquet reader sees it."""
    files = Path(lake, "manifest", f"job={job}").glob("*.parquet")
    table = pa.concat_tables([pq.ParquetFile(file).read() for file in files])
    assert table.schema.names == MANIFEST.fieldNames()
    return sorted(table.to_pylist(), key=lambda row: row["sequence"])


@pytest.mark.parametrize("small", [True, False])
def test_sequences_are_dense_in_the_order_of_the_ids(
    tmp_path: Path, make: Any, lake: str, monkeypatch: pytest.MonkeyPatch, *, small: bool
) -> None:
    """A small table is sorted by one task, a larger one by several."""
    monkeypatch.setattr(plans, "is_small", lambda _source: small)
    ids = [(number * 7919) % 20_011 for number in range(3_000)]
    noted, made = make(parquet(tmp_path, id=ids, payload=[f"p{one}" for one in ids]), parts=7)
    rows = rows_of(lake)
    assert [row["sequence"] for row in rows] == list(range(3_000))
    assert [int(row["source_id"]) for row in rows] == sorted(ids)
    assert all(row["payload"] == f"p{row['source_id']}" for row in rows)
    assert rows[5]["digest"] == hashlib.sha256(rows[5]["payload"].encode()).hexdigest()
    assert (noted.rows, noted.parts, made) == (3_000, 7, True)
    parts = [row["part"] for row in rows]
    assert parts == sorted(parts)
    assert set(parts) == set(range(7))
    assert unfinished(noted, {}) == list(range(7))
    sizes = {part: range(parts.count(part)) for part in range(7)}
    assert unfinished(noted, sizes) == []  # type: ignore[arg-type]  # only its length counts


def test_the_same_rows_in_another_order_give_the_same_plan(tmp_path: Path, make: Any, lake: str) -> None:
    first, _ = make(parquet(tmp_path, id=[3, 1, 2], payload=["c", "a", "b"]))
    again, made = make(parquet(tmp_path, id=[1, 2, 3], payload=["a", "b", "c"]))
    assert (again, made) == (first, False)
    assert len(rows_of(lake)) == 3


@pytest.mark.parametrize(
    ("ids", "payloads"), [([1, 2, 3], ["a", "b", "x"]), ([1, 2, 4], ["a", "b", "c"]), ([1, 2], ["a", "b"])]
)
def test_another_table_for_the_same_job_is_refused(
    tmp_path: Path, make: Any, lake: str, ids: list[int], payloads: list[str]
) -> None:
    make(parquet(tmp_path, id=[1, 2, 3], payload=["a", "b", "c"]))
    with pytest.raises(JobError, match=r"was planned on .* with other data.*--new-run"):
        make(parquet(tmp_path, id=ids, payload=payloads))
    assert [row["payload"] for row in rows_of(lake)] == ["a", "b", "c"]
    assert make(parquet(tmp_path, id=ids, payload=payloads), job="k")[1]


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"id": [1, None, 2], "payload": ["a", "b", "c"]}, "1 of 3 rows have no id"),
        ({"id": [1, 2, 3], "payload": ["a", None, None]}, "2 of 3 rows have no payload"),
        ({"id": [1, 2, 2, 1, 3], "payload": list("abcde")}, "ids must be unique, and these are not: '1', '2'$"),
        ({"id": [0, 0, 1, 1, 2, 2, 3, 3, 9], "payload": list("abcdefghi")}, "'0', '1', '2' and others$"),
        ({"id": pa.array([], pa.int64()), "payload": pa.array([], pa.string())}, "no rows"),
        ({"key": [1], "payload": ["a"]}, "no column 'id': it has key, payload$"),
        ({"id": [1], "payload": [{"a": 1}]}, "column 'payload' is of type struct<a:bigint>, which has no text"),
    ],
)
def test_an_unfit_table_is_refused_with_one_line(
    tmp_path: Path, make: Any, lake: str, columns: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(JobError, match=complaint) as caught:
        make(parquet(tmp_path, **columns))
    assert "\n" not in str(caught.value)
    assert not list(Path(lake).glob("manifest/*"))


def test_more_rows_than_sequences_are_refused(tmp_path: Path, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "LARGEST", 1)
    assert make(parquet(tmp_path, id=[1, 2], payload=["a", "b"]), job="fits")
    with pytest.raises(JobError, match="has 3 rows, and a job can have 2: split it"):
        make(parquet(tmp_path, id=[1, 2, 3], payload=["a", "b", "c"]))


def test_a_plan_without_write_creates_no_manifest(tmp_path: Path, make: Any, lake: str) -> None:
    noted, made = make(parquet(tmp_path, id=[1], payload=["a"]), write=False)
    assert (noted.rows, made) == (1, True)
    assert not list(Path(lake).glob("manifest/*"))


def test_the_digest_depends_on_the_rows_and_not_on_their_order(spark: SparkSession) -> None:
    rows = [(n, str(n), f"p{n}", "", 0, None) for n in range(50)]
    one, other = (local_dataframe(spark, some, MANIFEST) for some in (rows, rows[::-1]))
    assert digests_of(one) == digests_of(other.repartition(3))
    assert digests_of(one) != digests_of(one.withColumn("payload", F.concat("payload", F.lit("x"))))
    assert digests_of(one) != digests_of(one.withColumn("deadline", F.lit("2026-01-01")))
    assert digests_of(one.withColumn("part", F.lit(3))) == digests_of(one)
    hashes = [row[0] for row in one.select(F.xxhash64("sequence", "source_id")).collect()]
    assert key_digest_of(one) == (50, f"{sum(hashes) % 2**64:016x}")
    assert digests_of(one)[1] == key_digest_of(one)[1]


# ---------------------------------------------------------------- formats


def test_csv_ids_that_are_numbers_are_sorted_as_numbers(tmp_path: Path, make: Any, lake: str) -> None:
    path = tmp_path / "in.csv"
    path.write_text('id,payload,due\n10,"say ""hi"", twice\nover",2026-01-01T00:00:00Z\nb,x,\n9,"1,5",\na,,\n')
    with pytest.raises(JobError, match="1 of 4 rows have no payload"):
        make(str(path), format="csv", deadline="due")
    path.write_text(path.read_text().replace("a,,", "a,last,"))
    make(str(path), format="csv", deadline="due")
    rows = rows_of(lake)
    assert [row["source_id"] for row in rows] == ["9", "10", "a", "b"]
    assert rows[1]["payload"] == 'say "hi", twice\nover'
    assert [row["deadline"] for row in rows] == [None, "2026-01-01T00:00:00Z", None, None]


def test_json_payloads_are_kept_as_they_were_written(tmp_path: Path, make: Any, lake: str) -> None:
    path = tmp_path / "in.jsonl"
    lines = [{"id": 2, "payload": {"depth": 3, "rate": 0.10}}, {"id": 1, "payload": "plain"}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    make(str(path), format="json")
    assert [row["payload"] for row in rows_of(lake)] == ["plain", '{"depth": 3, "rate": 0.1}']


def test_a_table_of_a_database_is_read_by_jdbc(spark: SparkSession, make: Any, lake: str) -> None:
    url, driver = "jdbc:derby:memory:work;create=true", "org.apache.derby.iapi.jdbc.AutoloadedDriver"
    table = spark.range(20).select(
        F.col("id").alias("ID"), F.concat(F.lit("p"), "id").cast("varchar(20)").alias("PAYLOAD")
    )
    table.write.format("jdbc").options(
        url=url, driver=driver, dbtable="TASKS", createTableColumnTypes="PAYLOAD varchar(20)"
    ).mode("overwrite").save()
    make(url, format="jdbc", options=(("driver", driver), ("dbtable", "TASKS")), id="ID", payload="PAYLOAD")
    assert [row["payload"] for row in rows_of(lake)] == [f"p{n}" for n in range(20)]


def test_times_become_deadlines_in_the_format_of_rfc_3339(
    spark: SparkSession, tmp_path: Path, make: Any, lake: str
) -> None:
    path = str(tmp_path / "times")
    spark.sql("select 1 as id, 'a' as payload, timestamp'2026-01-02 03:04:05.678 UTC' as due").write.parquet(path)
    make(path, deadline="due")
    assert rows_of(lake)[0]["deadline"] == "2026-01-02T03:04:05.678Z"


def test_a_column_may_have_a_dot_in_its_name(tmp_path: Path, make: Any, lake: str) -> None:
    make(parquet(tmp_path, **{"a.id": [1], "a`b": ["x"]}), id="a.id", payload="a`b")
    assert rows_of(lake)[0]["payload"] == "x"


def test_the_parts_are_few_and_small_enough_for_a_task_to_sort() -> None:
    assert [default_parts(rows) for rows in (1, 50_000, 50_001, 10**7, 10**9)] == [1, 1, 2, 64, 1_000]


def test_a_table_of_a_catalog_is_planned_by_its_name(spark: SparkSession, make: Any, lake: str) -> None:
    spark.range(3).selectExpr("id", "concat('p', id) as payload").write.mode("overwrite").saveAsTable("work")
    make("default.work", format="table")
    assert [row["payload"] for row in rows_of(lake)] == ["p0", "p1", "p2"]
    with pytest.raises(JobError, match=r"--input-table default\.nothing cannot be read: .*TABLE_OR_VIEW_NOT_FOUND"):
        make("default.nothing", format="table", job="k")


def test_a_delta_table_is_not_read_as_parquet(make: Any, tmp_path: Path) -> None:
    """As Parquet, it would include rows that were deleted or replaced."""
    pq.write_table(pa.table({"id": [1], "payload": ["a"]}), tmp_path / "part-0.parquet")
    (tmp_path / "_delta_log").mkdir()
    with pytest.raises(JobError, match="is a Delta table: give --input-format delta"):
        make(str(tmp_path))
