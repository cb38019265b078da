"""All steps in one call, from Python and on the command line, and what a user does when answers are missing."""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import itertools
import json
import os
import re
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pipeline import Job
from pipeline.audit.result import Verdict
from pipeline.cli import main
from pipeline.errors import JobError, SettingsError
from pipeline.jobs.collect import Collected, collect
from pipeline.kafka import sending
from pipeline.kafka.sending import send_table
from pipeline.settings import Common
from tests.spark.support import responder
from tests.spark.support.exchange import Place, Site

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.exactly_once.sender import Sender
    from tests.kafka_broker import Broker

ROWS = 60
DOCS = Path(__file__).parents[2] / "docs/pipeline.md"


@pytest.fixture
def site(broker: Broker, tmp_path: Path) -> Site:
    return Site(broker, tmp_path)


def work(spark: SparkSession, rows: int = ROWS) -> DataFrame:
    return spark.range(rows).selectExpr("id", "concat('payload of ', id) as payload")


def answering(site: Site, count: int = ROWS) -> threading.Thread:
    """Start a thread that answers ``count`` requests beside the test."""
    arguments = (site.bootstrap, site.requests, site.acks, count)
    thread = threading.Thread(target=responder.main, args=arguments, kwargs={"transactional": True}, daemon=True)
    thread.start()
    return thread


def test_a_run_leads_from_a_table_to_a_proof_and_restores_the_session(
    spark: SparkSession, site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    worker = answering(site)
    try:
        result = Job(spark, site.job, site.lake, kafka=site.environment).run(work(spark), id="id", payload="payload")
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
        assert spark.conf.get("spark.sql.ansi.enabled") == "false"
        assert spark.streams.active == []
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        spark.conf.set("spark.sql.ansi.enabled", "true")
        worker.join()
    assert result.audit is not None
    assert result.answers is not None
    assert (result.audit.verdict, result.answered, result.answers.rows) == (Verdict.PROVED, ROWS, ROWS)
    assert result.audit.durations["latency"]["count"] == ROWS
    assert (Path(site.auditing().audit) / "report.html").exists()
    assert capsys.readouterr().out == ""
    # A second call does not repeat the completed steps.
    again = Job(spark, site.job, site.lake, kafka=site.environment).run()
    assert (again.submitted.already_sent, again.submitted.sent, again.answered) == (ROWS, 0, ROWS)


def test_the_requests_that_an_audit_misses_are_sent_again_once(
    spark: SparkSession, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = []

    def noting(table: Any, rows_of: Any, sender: Sender, parts: Any) -> Any:
        rates.append(sender.rate)
        return send_table(table, rows_of, sender, parts)

    job = Job(spark, site.job, site.lake, kafka=site.environment)
    job.plan(work(spark), id="id", payload="payload")
    job.submit()
    with pytest.raises(JobError, match="has no audit"):
        job.resend_missing()
    sent = {int(seen.key[-10:]): (site.requests, seen.partition, seen.offset) for seen in site.records(site.requests)}
    unanswered = {3, 17, 44}
    site.send(site.acks, [site.answer(n, place) for n, place in sent.items() if n not in unanswered])  # type: ignore[arg-type]
    job.collect()
    audited = job.audit()
    assert (audited.verdict, audited.counts.missing) == (Verdict.DISPROVED, 3)
    assert job.resend_missing(dry_run=True).sent == 0
    with monkeypatch.context() as patched:
        patched.setattr(sending, "send_table", noting)
        assert job.resend_missing(rate=100.0).sent == 3
    assert rates == [100.0]
    assert job.resend_missing()[2:] == (3, 3, 0), "the same audit again sends nothing"
    again = [
        seen for seen in site.records(site.requests) if sent[int(seen.key[-10:])][1:] != (seen.partition, seen.offset)
    ]
    assert {int(seen.key[-10:]) for seen in again} == unanswered
    answers = [site.answer(int(s.key[-10:]), (site.requests, s.partition, s.offset)) for s in again]  # type: ignore[arg-type]
    site.send(site.acks, answers)
    job.collect()
    assert job.audit().verdict is Verdict.PROVED


def submitted(spark: SparkSession, site: Site, rows: int) -> tuple[Job, dict[int, Place]]:
    """Return a job whose requests are in the topic, and their places."""
    job = Job(spark, site.job, site.lake, kafka=site.environment)
    job.plan(work(spark, rows), id="id", payload="payload")
    job.submit()
    sent = {int(seen.key[-10:]): Place(site.requests, *seen[:2]) for seen in site.records(site.requests)}
    return job, sent


def test_a_run_follows_until_each_request_is_answered_despite_duplicates(spark: SparkSession, site: Site) -> None:
    job, sent = submitted(spark, site, 3)
    site.send(site.acks, [site.answer(n, sent[n]) for n in (0, 1, 1)])
    job.collect()
    looks = itertools.count(1)

    def stop() -> bool:
        if next(looks) == 3:  # the run still follows, although there are as many answers as requests
            site.send(site.acks, [site.answer(2, sent[2])])
        return False

    result = job.run(stop=stop)
    assert result.audit is not None
    assert (result.audit.counts.missing, result.audit.counts.duplicate) == (0, 1)


def test_a_run_counts_answers_that_another_job_stores_before_the_stream_starts(
    spark: SparkSession, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, sent = submitted(spark, site, 3)
    site.send(site.acks, [site.answer(n, sent[n]) for n in range(3)])
    others = [replace(site.collecting(), job="other")]

    def collect_second(*given: Any) -> Collected:
        while others:
            collect(spark, others.pop())
        return collect(*given)

    monkeypatch.setattr("pipeline.jobs.run.collect", collect_second)
    looks = itertools.count(1)
    result = job.run(stop=lambda: next(looks) > 200)  # two looks in 0.2 s
    assert (result.audit and result.audit.verdict, result.answered) == (Verdict.PROVED, 3)


def test_the_example_of_the_documentation_runs(
    spark: SparkSession, site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code = example("from pipeline import Job")
    assert len(code.splitlines()) <= 10
    work(spark).withColumnRenamed("payload", "configuration").write.parquet(str(tmp_path / "work.parquet"))
    code = code.replace("/data/lake", site.lake).replace("/data/work.parquet", str(tmp_path / "work.parquet"))
    for name, text in site.environment.items():
        monkeypatch.setenv(name, text)
    worker = answering(site)
    names: dict[str, Any] = {}
    exec(compile(code, str(DOCS), "exec"), names)
    worker.join()
    assert names["result"].audit.verdict == "proved"
    assert names["answers"].count() == ROWS
    assert os.environ["KAFKA_ACK_TOPIC"] == site.acks


class FailError(Exception):
    """A replacement for Airflow's exception that is not retried."""


def test_the_airflow_task_of_the_documentation_retries_an_undecided_audit(
    spark: SparkSession, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task runs as Airflow calls it; ``pipeline`` runs in this process, to save the start of a JVM."""
    job = Job(spark, site.job, site.lake, kafka=site.environment)
    job.plan(work(spark, 3), id="id", payload="payload")
    job.submit()
    sent = {
        int(seen.key[-10:]): Place(site.requests, seen.partition, seen.offset) for seen in site.records(site.requests)
    }
    site.send(site.acks, [site.answer(n, place) for n, place in sent.items()])
    task = airflow_task(monkeypatch, site)
    with pytest.raises(subprocess.CalledProcessError) as undecided:  # Airflow retries
        task(site.job, site.lake)
    assert undecided.value.returncode == 2
    job.collect()
    assert (found := task(site.job, site.lake))["verdict"] == "proved", found
    site.send(site.acks, [site.answer(1, sent[1])])
    job.collect()
    with pytest.raises(FailError, match="exit code 1"):
        task(site.job, site.lake)


def airflow_task(monkeypatch: pytest.MonkeyPatch, site: Site) -> Any:
    """Return the function of the documentation, without Airflow, and with ``pipeline`` in this process."""
    for name, text in site.environment.items():
        monkeypatch.setenv(name, text)

    def run(command: list[str], *, stdout: int, check: bool) -> subprocess.CompletedProcess[str]:
        assert (command[0], stdout, check) == ("pipeline", subprocess.PIPE, False)
        monkeypatch.setattr(sys, "argv", command)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            code = main.run()
        return subprocess.CompletedProcess(command, code, printed.getvalue())

    calls = SimpleNamespace(run=run, PIPE=subprocess.PIPE)
    names: dict[str, Any] = {"subprocess": calls, "json": json, "timedelta": dt.timedelta}
    names |= {"task": lambda **_options: lambda function: function, "AirflowFailException": FailError}
    exec(compile(example("@task("), str(DOCS), "exec"), names)
    return names["audit"]


def example(begins_with: str) -> str:
    """Return the Python example of the documentation with this line."""
    found = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    (code,) = [code for code in found if begins_with in code]
    return str(code)


@pytest.mark.parametrize("store", ["s3a://bucket/lake", "gs://bucket/lake", "S3://bucket/lake"])
def test_plain_parquet_is_refused_on_an_object_store(store: str) -> None:
    with pytest.raises(SettingsError, match="--table-format delta"):
        Common(job="j", lake=store)
    assert Common(job="j", lake=store, table_format="delta").lake == store
    assert Common(job="j", lake="hdfs://name/lake").lake == "hdfs://name/lake"
