"""All steps on real Spark and real Kafka: a table is planned, submitted, answered, collected, and proved. Then the test
adds faults, and the audit names exactly these.

``E2E_LONG=1`` runs it, with 200,000 requests. Each step and each fault has a case in ``test_run.py`` and
``test_audit.py``.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.jobs import answers, audit, collect, submit
from pipeline.settings import AnswersSettings, Source, SubmitSettings
from tests.long_form import long_only
from tests.spark.support.exchange import Place, Record, Site

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.kafka_broker import Broker

ROWS = 200_000
ROOT = Path(__file__).parents[2]


def submitted(spark: SparkSession, site: Site, folder: Path) -> None:
    numbers = random.Random(5).sample(range(10 * ROWS), ROWS)
    table = pa.table({"id": [f"m-{n:09d}" for n in numbers], "what": [f"payload of {n}" for n in numbers]})
    pq.write_table(table, folder / "work.parquet")
    source = Source(uri=str(folder / "work.parquet"), id="id", payload="what")
    submit.submit(spark, SubmitSettings(kafka=site.kafka, source=source, **site.common))


def answered(site: Site, *options: str) -> None:
    command = [sys.executable, "-m", "tests.spark.support.responder", site.bootstrap, site.requests, site.acks]
    subprocess.run([*command, str(ROWS), *options], check=True, cwd=ROOT)


def verdict(site: Site) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(site.lake) / "audit" / f"job={site.job}" / "audit.json").read_text())
    return found


def listed(site: Site, name: str, *columns: str) -> set[tuple[Any, ...]]:
    table = pq.read_table(Path(site.lake) / "audit" / f"job={site.job}" / name, columns=list(columns))
    return {tuple(row.values()) for row in table.to_pylist()}


def without(site: Site, removed: set[int]) -> dict[bytes, bytes]:
    """Move to an ack topic that has every answer but those of ``removed``. Return all answers by key."""
    found, gone = site.records(site.acks), {site.key(n) for n in removed}
    site.move_acks()
    site.send(site.acks, [Record(seen.key, seen.value) for seen in found if seen.key not in gone])
    return {seen.key: seen.value for seen in found}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@long_only
def test_the_audit_proves_a_job_and_then_names_each_added_fault(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    site = Site(broker, tmp_path, job="e2e")
    submitted(spark, site, tmp_path)
    answered(site, "--transactional")
    assert collect.collect(spark, site.collecting()).complete
    assert audit.audit(spark, site.auditing(html=True)).verdict == "proved"
    found = verdict(site)
    assert (found["verdict"], found["planned"], found["answered"], found["out_of_order"]) == ("proved", ROWS, ROWS, 0)
    assert answers.answers(spark, AnswersSettings(kafka=site.kafka, **site.common)).rows == ROWS
    table = spark.read.parquet(f"{site.lake}/answers/job=e2e")
    assert table.count() == ROWS
    wrong = table.where("result_text != upper(concat('payload of ', int(substr(source_id, 3))))")
    assert wrong.count() == 0
    assert table.where("requested_at is null or requested_at > answered_at").count() == 0

    chosen = random.Random(9).sample(range(ROWS), 18)
    removed, doubled, hanging = set(chosen[:7]), set(chosen[7:17]), chosen[17]
    originals = without(site, removed | {hanging})
    site.send(site.acks, [Record(site.key(n), originals[site.key(n)]) for n in doubled])
    broken = site.send(site.acks, [Record(site.key(0), b"\xff"), Record(None, b"\x0a\xff"), Record(b"", b"garbage")])
    (foreign,) = site.send(site.acks, [site.answer(1, Place(site.requests, 0, 0))._replace(key=b"somebody/else")])
    transaction = site.transaction([Record(site.key(hanging), originals[site.key(hanging)])], "open")
    assert collect.collect(spark, site.collecting()).complete
    assert audit.audit(spark, site.auditing()).verdict == "undecided"
    assert (verdict(site)["verdict"], verdict(site)["open"], verdict(site)["blocked_partitions"]) == ("undecided", 1, 1)
    transaction.commit_transaction(30)
    assert collect.collect(spark, site.collecting()).complete
    assert audit.audit(spark, site.auditing(html=True)).verdict == "disproved"
    found = verdict(site)
    names = ("verdict", "planned", "answered", "missing", "duplicate", "unexpected", "undecodable", "open", "failed")
    assert tuple(found[name] for name in names) == ("disproved", ROWS, ROWS - 17, 7, 10, 1, 3, 0, 0)
    assert listed(site, "missing", "sequence") == {(n,) for n in removed}
    assert listed(site, "duplicate", "request_sequence") == {(n,) for n in doubled}
    assert listed(site, "unexpected", "topic", "partition", "offset") == {tuple(foreign)}
    assert listed(site, "undecodable", "topic", "partition", "offset") == {tuple(place) for place in broken}
