"""The command line: a clear line and an exit code for each error, options from the environment, and quick help."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.audit.result import AuditResult, Counts
from pipeline.cli import environment, main
from pipeline.errors import AuditFailedError, BrokerError, JobError, SettingsError, format_error
from pipeline.settings import format_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession

KAFKA = {"KAFKA_BOOTSTRAP_SERVER": "127.0.0.1:1", "KAFKA_REQUEST_TOPIC": "r", "KAFKA_ACK_TOPIC": "a"}


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, list[str]]]:
    """Return a function that runs a command in the tests' session. It returns the exit code and the lines on stderr."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str, **variables: str) -> tuple[int, list[str]]:
        monkeypatch.setattr(sys, "argv", ["pipeline", *arguments])
        for name, text in variables.items():
            monkeypatch.setenv(name, text)
        code = main.run()
        return code, capsys.readouterr().err.splitlines()

    return command


def test_help_is_quick_and_needs_no_spark() -> None:
    code = "import sys; sys.argv = ['pipeline', 'submit', '--help']\nfrom pipeline.cli import main\nmain.run()\n"
    code += "assert not {'pyspark', 'pyarrow', 'confluent_kafka'} & set(sys.modules), 'slow imports'"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--semantics" in done.stdout
    began = time.monotonic()
    for command in main.cli.commands:
        assert "--job" in [option for each in main.cli.commands[command].params for option in each.opts]
    assert time.monotonic() - began < 1


@pytest.mark.parametrize(
    ("arguments", "variables", "line"),
    [
        (["answers", "--lake", "l"], {}, "Missing option '--job'"),
        (["answers", "--job", "a/b", "--lake", "l"], {}, "'a/b' must have up to 100"),
        (["answers", "--job", "j"], {"PIPELINE_LAKEE": "l"}, "PIPELINE_LAKEE is not known: is PIPELINE_LAKE meant?"),
        (["submit", "--job", "j", "--lake", "l"], {}, "KAFKA_BOOTSTRAP_SERVER is not set: broker list"),
        (["submit", "--job", "j", "--lake", "l"], {**KAFKA, "KAFKA_ACK_TOPICC": "x"}, "is KAFKA_ACK_TOPIC meant?"),
        (["submit", "--job", "j", "--lake", "l", "--input", "x"], KAFKA, "--input needs --id and --payload"),
        (["submit", "--job", "j", "--lake", "l", "--rate", "0"], KAFKA, "0.0 is not in the range x>0"),
        (["collect", "--job", "j", "--lake", "l"], KAFKA, "give either --available-now or --follow"),
        (["compact", "--job", "j", "--lake", "l", "--before", "soon"], {}, "'soon' must be a date"),
        (["audit", "--job", "j", "--lake", "l", "--wait", "x"], KAFKA, "'x' must be a duration"),
        (["audit", "--job", "j", "--lake", "l"], {}, "KAFKA_BOOTSTRAP_SERVER is not set"),
        (["audit", "--job", "j"], KAFKA, "Missing option '--lake'"),
        (["run", "--job", "j", "--lake", "l", "--timeout", "x"], KAFKA, "'x' must be a duration"),
        (
            [
                "submit",
                "--job",
                "j",
                "--lake",
                "l",
                "--resend",
                "missing",
                "--input",
                "x",
                "--id",
                "i",
                "--payload",
                "p",
            ],
            KAFKA,
            "--resend takes the requests from the manifest: leave out --input, --id, --payload",
        ),
        (
            ["submit", "--job", "j", "--lake", "l", "--resend", "missing", "--new-run", "--no-resume", "--parts", "3"],
            {**KAFKA, "PIPELINE_SEMANTICS": "at-least-once"},
            "leave out --parts, --semantics, --new-run, --no-resume",
        ),
        (
            ["plan", "--job", "j", "--lake", "l", "--id", "i", "--payload", "p", "--input-option", "password=hunter2"],
            {},
            "password is a secret: set PIPELINE_INPUT_OPTION",
        ),
    ],
)
def test_a_wrong_option_or_setting_is_an_error_with_code_64_and_its_cause(
    run: Any, arguments: list[str], variables: dict[str, str], line: str
) -> None:
    found, lines = run(*arguments, **variables)
    assert found == 64
    assert line in "\n".join(lines)
    assert "Traceback" not in "\n".join(lines)
    assert "hunter2" not in "\n".join(lines)


@pytest.mark.parametrize(
    ("error", "code"),
    [(MemoryError(), 3), (JobError("no manifest"), 3), (KeyError("x"), 3), (BrokerError("away"), 4), (None, 0)],
)
def test_an_audit_that_fails_has_another_exit_code_than_a_verdict(
    run: Any, monkeypatch: pytest.MonkeyPatch, error: Exception | None, code: int
) -> None:
    """Code 1 means disproved, and 2 means undecided. A crash is neither."""

    def crashes(*_: Any) -> int:
        if error is not None:
            raise error
        return 0

    monkeypatch.setattr("pipeline.cli.start.run", crashes)
    assert run("audit", "--job", "j", "--lake", "l", **KAFKA)[0] == code


def test_a_run_whose_audit_fails_has_the_exit_code_of_a_failed_audit(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> int:
        raise AuditFailedError from MemoryError("no more")

    monkeypatch.setattr("pipeline.cli.start.run", fails)
    code, lines = run("run", "--job", "j", "--lake", "l", **KAFKA)
    assert (code, lines[-1]) == (3, "MemoryError: no more")


def test_an_audit_fails_if_the_failed_answers_reach_the_given_limit(
    spark: SparkSession, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = AuditResult(job="j", requests_from="manifest", counts=Counts(planned=9, answered=9, failed=3))
    monkeypatch.setattr("pipeline.cli.commands.audit", lambda *_: found)
    monkeypatch.setattr("pipeline.cli.start.build_session", lambda *_, **__: spark)
    command = ("audit", "--job", "j", "--lake", "l")
    codes = [run(*command, "--fail-on-failed", limit, **KAFKA)[0] for limit in ("3", "4")]
    assert (codes, run(*command, **KAFKA)[0]) == ([1, 0], 0)


def test_the_error_of_a_wrong_table_is_one_line(spark: SparkSession, run: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 1], "payload": ["a", "b"]}), tmp_path / "doubled.parquet")
    (tmp_path / "bad.jsonl").write_text('{"id": 1, "payload": "a"}\n{"id": \n')
    table = ["plan", "--job", "j", "--lake", "lake", "--payload", "payload", "--id", "id"]
    assert run(*table, "--input", "doubled.parquet") == (1, ["pipeline: ids must be unique, and these are not: '1'"])
    code, lines = run(*table, "--input", "nothing.parquet")
    assert (code, len(lines)) == (1, 1)
    assert "Path does not exist" in lines[0]
    code, lines = run(*table, "--input", "bad.jsonl")
    assert (code, len(lines)) == (1, 1)
    assert "bad.jsonl: Unexpected end-of-input" in lines[0]


@pytest.mark.parametrize(
    ("uri", "kind"),
    [
        ("work.csv", "csv"),
        ("s3a://bucket/Work.CSV.gz", "csv"),
        ("/data/work.jsonl", "json"),
        ("work.ndjson.bz2", "json"),
        ("/data/work.json/", "json"),
        ("jdbc:sqlite:work.csv", "jdbc"),
        ("/data/work", "parquet"),
        ("/data/work.parquet", "parquet"),
        ("/data.csv/work", "parquet"),
    ],
)
def test_the_ending_of_a_uri_determines_the_format(uri: str, kind: str) -> None:
    assert format_of(uri) == kind


def test_the_error_of_a_table_in_another_format_is_one_line(spark: SparkSession, run: Any, tmp_path: Path) -> None:
    (tmp_path / "work").write_text("id,payload\n1,a\n")
    code, lines = run("plan", "--job", "j", "--lake", "lake", "--payload", "payload", "--id", "id", "--input", "work")
    assert (code, len(lines)) == (1, 1)
    assert lines[0].endswith("work is not a Parquet file: name its format with --input-format")


def test_the_error_of_a_lake_that_cannot_be_written_is_one_short_line(
    spark: SparkSession, run: Any, tmp_path: Path
) -> None:
    pq.write_table(pa.table({"id": [1], "payload": ["a"]}), tmp_path / "in.parquet")
    table = ["--input", "in.parquet", "--id", "id", "--payload", "payload"]
    code, lines = run("plan", "--job", "j", "--lake", "/proc/nowhere", *table)
    assert (code, len(lines)) == (1, 1)
    assert lines[0].startswith("pipeline: Mkdirs failed to create file:/proc/nowhere/")


def test_the_error_of_an_unreachable_broker_is_one_line(spark: SparkSession, run: Any) -> None:
    code, lines = run("submit", "--job", "j", "--lake", "lake", **KAFKA)
    assert code == 4
    assert lines[-1].startswith("pipeline: looking up topic r failed at Kafka 127.0.0.1:1")
    assert "Traceback" not in "\n".join(lines)


@pytest.mark.parametrize("command", ["submit", "audit"])
def test_a_broker_error_in_a_spark_task_ends_the_command_with_code_4(
    spark: SparkSession, run: Any, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    def sending(_batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        raise BrokerError("part 3 cannot be sent")

    def job(*_given: Any, **_settings: Any) -> int:
        spark.range(1).mapInArrow(sending, "id long").collect()
        return 0

    monkeypatch.setattr(main, "_run", job)
    assert run(command, "--job", "j", "--lake", "lake", **KAFKA) == (4, ["pipeline: part 3 cannot be sent"])


def test_options_come_from_the_environment(spark: SparkSession, run: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1], "payload": ["a"]}), tmp_path / "in.parquet")
    (tmp_path / "job").write_text("from-a-file\n")
    variables = {"PIPELINE_LAKE": "lake", "PIPELINE_JOB_FILE": "job", "PIPELINE_ID": "wrong", "PIPELINE_PARTS": "2"}
    assert run("plan", "--input", "in.parquet", "--id", "id", "--payload", "payload", **variables) == (0, [])
    assert (tmp_path / "lake/manifest/job=from-a-file/_SUCCESS").exists()


# ---------------------------------------------------------------- the parts


def test_variables_of_other_programs_are_ignored_and_misspelt_ones_refused() -> None:
    names = {parameter.name for command in main.cli.commands.values() for parameter in command.params if parameter.name}
    kubernetes = {"PIPELINE_SERVICE_HOST": "1", "PIPELINE_PORT": "tcp://1", "PIPELINE_PORT_80_TCP": "x"}
    assert environment.options({**kubernetes, "PIPELINE_WHATEVER": "x", "PIPELINE_JOB": "j"}, names) == {"job": "j"}
    for wrong in (
        {"PIPELINE_MAXREPLAYS": "1"},
        {"PIPELINE_RAET": "1"},
        {"PIPELINE_JOB_FILE": "/no/such"},
        {"PIPELINE_JOBS": "x"},
    ):
        with pytest.raises(SettingsError):
            environment.options(wrong, names)


def test_an_error_in_a_spark_task_is_reported_by_its_last_line() -> None:
    from pyspark.errors import PythonException  # noqa: PLC0415

    trace = 'An exception was thrown\nTraceback (most recent call last):\n  File "x"\n'
    ours = PythonException(f"{trace}worker.errors.BrokerError: the topic is gone\n")
    assert format_error(ours) == ["the topic is gone"]
    assert format_error(PythonException(f"{trace}ValueError: bad\n")) == ["ValueError: bad"]
    assert format_error(JobError("one\ntwo")) == ["one", "two"]
    assert format_error(KeyError("a fault of ours")) is None


def test_the_error_of_a_jvm_that_has_died_is_one_line() -> None:
    """This holds for every error that py4j raises then. Most likely, the kernel killed the JVM for lack of memory."""
    from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]  # noqa: PLC0415 - py4j has no types

    for error in (Py4JNetworkError("answer from Java side is empty"), ConnectionRefusedError(111, "refused")):
        (line,) = format_error(error) or ["a trace"]
        assert "run the same command again" in line
