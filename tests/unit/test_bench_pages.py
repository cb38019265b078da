"""The benchmarks' goals, tables, pages, kept results and headline ratios."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import __main__ as suite
from benchmarks import check, plots, results
from benchmarks.failure import Failure
from benchmarks.figures import (
    TIMES,
    Figure,
)
from benchmarks.goals import GOALS, verdicts
from benchmarks.names import SHARE
from benchmarks.pages import answers_sheet, appendix, engines_sheet, summary
from benchmarks.processes import EndedError
from benchmarks.report import (
    Report,
    Section,
    as_json,
    comparison_sheet,
    figures_sheet,
    goals_sheet,
    markdown,
    number,
    terminal,
    wins,
)


def figure(*values: float, goal: str = "", quantity: str = "empty tasks") -> Figure:
    return Figure("throughput", quantity, "worker", "tasks/s", values, goal)


# -- goals


@pytest.mark.parametrize(
    ("goal", "values", "expected"),
    [
        ("bare", (0.2, 0.3, 0.4), "reached"),
        ("bare", (0.2, 0.29, 0.4), "NOT reached"),
        ("start-up", (2.0, 3.0, 9.0), "reached"),
        ("start-up", (2.0, 3.1, 9.0), "NOT reached"),
        ("memory idle", (60.0, 69.0), "reached"),
        ("memory idle", (60.0, 60.0, 71.0), "NOT reached"),  # every process has to reach it
    ],
)
def test_a_goal_is_judged(goal: str, values: tuple[float, ...], expected: str) -> None:
    found = {verdict.goal: verdict.text for verdict in verdicts([figure(*values, goal=goal)])}

    assert found[GOALS[goal]] == expected


def test_a_goal_without_a_measurement_is_shown_as_not_measured() -> None:
    assert {verdict.text for verdict in verdicts([figure(1.0)])} == {"not measured"}


def test_goals_are_written_as_in_the_design() -> None:
    assert GOALS["bare"].text == "≥ 0.3 \N{MULTIPLICATION SIGN}"
    assert GOALS["submit"].text == "≥ 30,000 /s"
    assert GOALS["10 ms"].text == "≥ 0.97"
    assert GOALS["memory idle"].text == "≤ 70 MB, every time"


# -- tables


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (123456.7, "123,457"),
        (100, "100"),
        (12.345, "12.3"),
        (1.234, "1.23"),
        (0.98765, "0.988"),
        (0, "0.000"),
        (-12.345, "-12.3"),
    ],
)
def test_numbers_are_shown_with_about_three_digits(value: float, expected: str) -> None:
    assert number(value) == expected


def test_a_row_shows_median_and_spread() -> None:
    assert figures_sheet([figure(3.0, 1.0, 2.0)]).rows[0][3:] == ("2.00", "tasks/s", "3", "range 1.00 … 3.00")
    six = figure(3.0, 1.0, 2.0, 6.0, 5.0, 4.0)
    assert figures_sheet([six]).rows[0][3:] == ("3.50", "tasks/s", "6", "1.00 … 6.00")
    assert figures_sheet([figure(3.0)]).rows[0][-1] == "one value"


def test_every_goal_has_a_row() -> None:
    rows = goals_sheet([figure(0.7, goal="bare")]).rows

    assert len(rows) == len(GOALS)
    assert rows[0][-1] == "reached"


def test_markdown_tables_are_rectangular() -> None:
    lines = markdown(figures_sheet([figure(1.0), figure(2.0)])).splitlines()

    assert lines[0] == "## All figures"
    assert {line.count("|") for line in lines[2:]} == {8}


def test_the_terminal_shows_the_same_rows() -> None:
    assert terminal(goals_sheet([])).row_count == len(GOALS)


TROUBLE = Failure("latency", "Celery", RuntimeError("it broke"))
FACTS = {"date": "today", "command": "scripts/bench", "engine": "abc"}
REPORT = Report(
    {"throughput": Section([figure(0.7, goal="bare")], [], FACTS), "latency": Section([], [str(TROUBLE)], FACTS)},
    {"machine": "a big one"},
)


PATHS = {"benchmarks/ratios.svg": "How many times", "benchmarks/tasks.svg": "How much"}


def test_the_summary_begins_with_the_answers_and_names_the_commands() -> None:
    text = summary(REPORT, PATHS)

    order = ["## Should I use it", "![How much](benchmarks/tasks.svg)", "## Goals", "- machine: a big one"]
    assert sorted(order, key=text.index) == order
    assert "`scripts/bench --only throughput`" in text
    assert "ratios.svg" not in text


def test_the_appendix_has_everything_else() -> None:
    text = appendix(REPORT, PATHS)

    for part in (
        "- latency: Celery: RuntimeError: it broke",
        "![How many times](benchmarks/ratios.svg)",
        "| throughput | today | scripts/bench | abc |",
        "## All figures",
    ):
        assert part in text
    assert "tasks.svg" not in text


def shares(workload: str, **medians: float) -> list[Figure]:
    return [Figure(workload, "10 ms tasks", name, SHARE, (value,)) for name, value in medians.items()]


@pytest.mark.parametrize(
    ("figures", "row"),
    [
        (
            shares("tasks-10ms", worker=0.9, Celery=0.6, arroyo=0.45),
            ("0.900", "0.600 (Celery)", f"**worker**, 1.5 {TIMES}"),
        ),
        (
            shares("tasks-10ms", worker=0.6, Celery=0.9),
            ("0.600", "0.900 (Celery)", f"Celery, 1.5 {TIMES}"),
        ),
        (shares("tasks-10ms", worker=0.9, Celery=0.95), ("0.900", "0.950 (Celery)", "about equal")),
        (shares("engines-tasks", worker=0.9), ("0.900", "", "no peer measured")),
        (shares("tasks-10ms", worker=0.5, Celery=1) + shares("engines-tasks", worker=0.9), ("0.500", "1.00 (Celery)")),
        ([], ("", "", "not measured")),
    ],
)
def test_the_answers_compare_the_worker_with_the_best_peer(figures: list[Figure], row: tuple[str, ...]) -> None:
    rows = {line[0]: line[2:] for line in answers_sheet(figures).rows}

    assert rows["Tasks of 10 ms"][: len(row)] == row


def test_the_engines_sheet_has_a_column_for_each_engine_but_not_for_ratios() -> None:
    programs = ("worker", "worker at abc1234", "worker ÷ worker at abc1234")
    figures = [Figure("engines-tasks", "10 ms tasks", name, SHARE, (0.5,)) for name in programs]

    sheet = engines_sheet(figures)

    assert sheet.header == ("what", "unit", "worker", "worker at abc1234")
    assert sheet.rows == [("10 ms tasks", SHARE, "0.500", "0.500")]


def test_the_program_with_the_shortest_time_is_ahead() -> None:
    figures = [
        Figure("start-up", "first task", "worker", "s", (3.0,)),
        Figure("start-up", "first task", "Celery", "s", (1.0,)),
        Figure("start-up", "first task", "arroyo", "s", (2.0,)),
    ]
    rows = {line[0]: line[2:] for line in answers_sheet(figures).rows}

    command = "`scripts/bench --only start-up`"
    assert rows["Process start to first task"] == ("3.00", "1.00 (Celery)", f"Celery, 3 {TIMES}", command)


def test_overlapping_intervals_decide_nothing() -> None:
    """Six values have an interval from the least to the greatest."""
    ours = Figure("start-up", "first task", "worker", "s", (1.0, 1.1, 1.2, 1.3, 1.4, 2.0))
    best = Figure("start-up", "first task", "Celery", "s", (1.9, 2.1, 2.2, 2.3, 2.4, 2.5))
    late = replace(best, values=(2.1, *best.values[1:]))
    rows = {line[0]: line[4] for line in answers_sheet([ours, best]).rows}
    assert rows["Process start to first task"] == "not decided"
    rows = {line[0]: line[4] for line in answers_sheet([ours, late]).rows}
    assert rows["Process start to first task"].startswith("**worker**")


@pytest.mark.parametrize(
    ("program", "failed"), [("worker", True), ("exactly-once", True), ("", True), ("Celery", False), ("arroyo", False)]
)
def test_a_failed_peer_does_not_fail_the_suite(program: str, failed: bool) -> None:
    assert Failure("peers", program, EndedError("it fell over", 1)).fatal is failed


def test_json_keeps_every_value() -> None:
    result = as_json(REPORT)

    assert result["figures"][0]["values"] == (0.7,)
    assert result["goals"][0]["verdict"] == "reached"
    assert result["facts"]["machine"] == "a big one"


def test_quantities_that_several_programs_have_are_compared() -> None:
    figures = [
        Figure("peers", "empty tasks", "worker", "tasks/s", (10.0,)),
        Figure("peers", "empty tasks", "Celery", "tasks/s", (2.0,)),
        Figure("peers", "alone", "worker", "tasks/s", (1.0,)),
        Figure("guarantees", "empty tasks", "at-most-once", "tasks/s", (9.0,)),
    ]

    header = ("what", "unit", "worker", "Celery")
    assert comparison_sheet(figures)[1:] == (header, [("empty tasks", "tasks/s", "10.0", "2.00")])


def test_a_peer_that_is_ahead_is_named_for_rates_and_for_times() -> None:
    figures = [
        Figure("peers", "empty tasks", "worker", "tasks/s", (10.0,)),
        Figure("peers", "empty tasks", "bare loop", "tasks/s", (20.0,)),
        Figure("peers", "empty tasks", "arroyo", "tasks/s", (11.0,)),
        Figure("peers", "empty tasks", "Celery", "tasks/s", (9.0,)),
        Figure("start-up", "start", "worker", "s", (2.0,)),
        Figure("start-up", "start", "arroyo", "s", (3.0,)),
        Figure("start-up", "start", "Celery", "s", (1.0,)),
    ]

    assert wins(figures).rows == [
        ("empty tasks", "tasks/s", "arroyo", "11.0", "10.0"),
        ("start", "s", "Celery", "1.00", "2.00"),
    ]


# -- kept results


def test_loaded_results_equal_the_saved_ones(tmp_path: Path) -> None:
    results.save(REPORT, tmp_path / "new/results.json")

    assert results.load(tmp_path / "new/results.json") == REPORT


def test_a_missing_file_has_no_results() -> None:
    assert results.load(Path("/nowhere")) == Report({}, {})


def test_a_new_measurement_replaces_only_the_results_of_its_workload() -> None:
    again = Section([figure(0.9)], [], FACTS)

    merged = results.merged(REPORT, Report({"latency": again}, {"versions": "new"}), ["latency", "throughput"])

    assert merged.sections == {"latency": again, "throughput": REPORT.sections["throughput"]}
    assert merged.facts == {"machine": "a big one", "versions": "new"}


def test_results_of_another_engine_are_dropped() -> None:
    """One document compares figures of one engine only."""
    again = Section([figure(0.9)], [], {**FACTS, "engine": "other"})

    merged = results.merged(REPORT, Report({"latency": again}, {}), ["latency", "throughput"])

    assert merged.sections == {"latency": again}


@pytest.mark.parametrize("fact", ["engine", "processor"])
def test_the_summary_says_that_its_figures_are_from_several_engines_or_processors(fact: str) -> None:
    one, other = (Section([], [], {**FACTS, fact: value}) for value in ("one", "other"))

    assert f"**These figures are from 2 {fact}s** (one; other)" in summary(Report({"a": one, "b": other}, {}), {})
    assert f"{fact}s" not in summary(Report({"a": one, "b": one}, {}), {}).partition("## Goals")[0]


def test_the_pages_in_the_repository_match_the_kept_results() -> None:
    """``scripts/bench --document`` writes the pages."""
    kept = results.load(suite.RESULTS)
    titles = {picture.name: picture.title for picture in plots.PICTURES}
    drawn = [name for name in titles if (suite.RESULTS.parent / f"{name}.svg").is_file()]
    pictures = {f"{suite.RESULTS.parent.name}/{name}.svg": titles[name] for name in drawn}

    figures = suite.DOCUMENT.with_stem("benchmarks-figures")
    assert suite.DOCUMENT.read_text(encoding="utf-8") == summary(kept, pictures)
    assert figures.read_text(encoding="utf-8") == appendix(kept, pictures)


def test_results_of_a_removed_workload_are_dropped() -> None:
    assert list(results.merged(REPORT, Report({"latency": REPORT.sections["latency"]}, {}), ["latency"]).sections) == [
        "latency"
    ]


# -- pictures


def test_only_pictures_with_figures_are_drawn(tmp_path: Path) -> None:
    figures = [
        Figure("start-up", "to first task", "worker", "s", (1.0, 2.0)),
        Figure("start-up", "to first task", "Celery", "s", (3.0,)),
    ]

    (tmp_path / "tasks.svg").touch()  # a picture of an earlier engine, whose results were dropped

    assert plots.draw(figures, tmp_path) == {"startup.svg": "Process start → first task running (less is better)"}
    assert [path.name for path in tmp_path.iterdir()] == ["startup.svg"]
    picture = (tmp_path / "startup.svg").read_text(encoding="utf-8")
    assert all(name in picture for name in ("worker", "Celery", "to first task"))


def test_every_label_has_three_digits_and_axes_have_plain_numbers(tmp_path: Path) -> None:
    medians = {"worker": 0.87, "Celery": 111.2, "arroyo": 2_010.0}
    plots.draw([Figure("latency", "p50", name, "ms", (value,)) for name, value in medians.items()], tmp_path)

    picture = (tmp_path / "latency.svg").read_text(encoding="utf-8")

    assert all(f">{label}<" in picture for label in ("0.870", "111", "2.01k", "1", "10", "100", "1k"))


# -- headline ratios


def headline(number: int, *values: float) -> Figure:
    return Figure(*check.HEADLINES[number][:4], values)


@pytest.mark.parametrize(
    ("number", "kept", "now", "failed"),
    [
        (0, 1.0, 0.81, False),
        (0, 1.0, 0.79, True),
        (0, 1.0, 5.0, False),
        (6, 1.0, 1.24, False),  # a latency: less is better
        (6, 1.0, 1.26, True),
        (6, 1.0, 0.1, False),
    ],
)
def test_a_headline_fails_if_it_is_a_fifth_worse(number: int, kept: float, now: float, *, failed: bool) -> None:
    changes = check.compare([headline(number, kept)], [headline(number, now)])

    assert changes[number].failed is failed
    assert not any(change.failed for change in changes if change.headline != check.HEADLINES[number])


def test_a_headline_that_is_no_longer_measured_fails() -> None:
    (change, *_) = check.compare([headline(0, 1.0)], [])
    assert not check.nothing_kept([change])
    assert check.nothing_kept(check.compare([], [headline(0, 1.0)]))

    assert change.failed
    assert str(change) == "FAIL  empty tasks, worker ÷ bare loop: not measured (kept: 1)"


def test_every_headline_is_in_the_kept_results_under_its_name() -> None:
    """A headline that was renamed would never fail."""
    kept = results.load(suite.RESULTS)
    figures = {(one.workload, one.quantity, one.program, one.unit) for one in kept.figures}

    assert {headline[:4] for headline in check.HEADLINES if headline.workload in kept.sections} <= figures
    assert {headline.workload for headline in check.HEADLINES} <= set(check.WORKLOADS) <= suite.WORKLOADS.keys()
