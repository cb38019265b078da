"""The order in which the suite runs: tests/running_order.py."""

from __future__ import annotations

from pathlib import Path

from tests.running_order import ONE_AT_A_TIME, SLOWEST, SPARK_SCOPES, in_running_order, scope_of

TESTS = Path(__file__).parents[1]


def test_files_that_only_compute_come_last() -> None:
    """No test is lost, and the tests of a file stay together."""
    items = ["unit/a 1", "kafka/b 1", "spark/c 1", "spark/c 2", "unit/a 2", "kafka/b 2", "contract/e 1", "kafka/f 1"]

    ordered = in_running_order(items, lambda item: Path("tests") / item.split()[0])

    assert ordered == [
        *("spark/c 1", "spark/c 2"),
        *("kafka/b 1", "kafka/b 2", "contract/e 1", "kafka/f 1"),
        *("unit/a 1", "unit/a 2"),
    ]


def test_all_files_of_spark_share_a_few_scopes() -> None:
    """So no more test processes than that start a JVM. The slowest files are in different ones."""
    files = [file.relative_to(TESTS.parent) for file in (TESTS / "spark").rglob("test_*.py")]

    assert len({scope_of(file) for file in files}) == SPARK_SCOPES
    slow = [name for name in SLOWEST if name.startswith("spark/")][:SPARK_SCOPES]
    assert len({scope_of(Path("tests") / name) for name in slow}) == SPARK_SCOPES


def test_the_slowest_files_come_first() -> None:
    """Each listed file exists. A renamed file would lose its place."""
    slow = [name for name in SLOWEST if name.startswith("kafka/") and name not in ONE_AT_A_TIME][:2]
    items = ["kafka/quick", *reversed(slow), "kafka/other"]

    assert in_running_order(items, lambda item: Path("tests") / item)[:2] == slow

    spark = [name for name in SLOWEST if name.startswith("spark/")][::SPARK_SCOPES]  # of one scope
    assert in_running_order(reversed(spark), lambda item: Path("tests") / item) == spark

    assert [name for name in SLOWEST if not (TESTS / name).exists()] == []


def test_files_that_load_the_whole_machine_share_a_scope() -> None:
    """So one test process runs them, one after another. Every other file has a separate scope."""
    files = [Path("tests") / name for name in (*ONE_AT_A_TIME, "kafka/test_drain.py", "spark/test_run.py")]

    assert len({scope_of(file) for file in files}) == 3

    items = [ONE_AT_A_TIME[2], "kafka/a", "spark/b", ONE_AT_A_TIME[0]]
    ordered = in_running_order(items, lambda item: Path("tests") / item)
    assert ordered == ["spark/b", ONE_AT_A_TIME[0], ONE_AT_A_TIME[2], "kafka/a"]
