"""The pure parts of the benchmarks: numbers, goals, tables."""

from __future__ import annotations

import pytest

from benchmarks.figures import Figure, Sample, Span, efficiency, quantile, ratios, slow_rate, steady
from benchmarks.goals import GOALS, verdicts
from benchmarks.programs import EndedError
from benchmarks.report import Report, Trouble, as_json, document, figures_sheet, goals_sheet, markdown, number, terminal


def figure(*values: float, goal: str = "", quantity: str = "empty tasks") -> Figure:
    return Figure("throughput", quantity, "worker", "tasks/s", values, goal)


# -- numbers


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0.0, 1), (0.5, 50), (0.505, 51), (0.99, 99), (0.991, 100), (1.0, 100)],
)
def test_a_quantile_is_the_least_value_that_the_share_does_not_exceed(share: float, expected: float) -> None:
    assert quantile(list(range(100, 0, -1)), share) == expected


def test_a_quantile_of_few_values_is_one_of_them() -> None:
    assert quantile([7.0], 0.99) == 7.0
    assert quantile([1.0, 2.0, 3.0], 0.5) == 2.0


def test_there_is_no_quantile_of_nothing() -> None:
    with pytest.raises(ValueError, match="no values"):
        quantile([], 0.5)


def test_ratios_pair_neighbours_as_far_as_both_go() -> None:
    assert ratios([2.0, 9.0, 5.0], [1.0, 3.0]) == (2.0, 3.0)


def test_a_figure_knows_its_median_and_spread() -> None:
    assert figure(3.0, 1.0, 2.0).median == 2.0
    assert figure(3.0, 1.0, 2.0).spread == (1.0, 3.0)


def test_the_steady_rate_ignores_a_slow_beginning_and_end() -> None:
    samples = [
        Sample(0.0, 0),
        Sample(10.0, 100, cpu=5.0, broker_cpu=1.0),
        Sample(18.0, 900, cpu=13.0, broker_cpu=3.0),
        Sample(50.0, 1000, cpu=14.0, broker_cpu=9.0),
    ]

    middle = steady(samples, 1000)

    assert middle.per_second == pytest.approx(100)
    assert middle.cpu_per_answer == pytest.approx(0.01)
    assert middle.broker_cpu_per_answer == pytest.approx(0.0025)


def test_the_steady_rate_lies_on_the_line_between_samples() -> None:
    assert steady([Sample(0.0, 0), Sample(10.0, 1000, cpu=1.0)], 1000).per_second == pytest.approx(100)


def test_more_answers_than_asked_for_do_no_harm() -> None:
    assert steady([Sample(0.0, 0), Sample(10.0, 2000)], 1000).per_second == pytest.approx(200)


def test_a_run_that_stopped_early_has_no_steady_rate() -> None:
    with pytest.raises(ValueError, match="never were 900 answers"):
        steady([Sample(0.0, 0), Sample(1.0, 500)], 1000)


def test_a_slow_rate_counts_from_the_first_answer() -> None:
    assert slow_rate([Sample(0.0, 0), Sample(4.0, 1), Sample(6.0, 5)]) == pytest.approx(2.0)


@pytest.mark.parametrize("samples", [[Sample(0.0, 0), Sample(9.0, 0)], [Sample(0.0, 0), Sample(9.0, 3)]])
def test_a_slow_rate_needs_two_moments(samples: list[Sample]) -> None:
    assert slow_rate(samples) == 0.0


# -- efficiency


def span(worker: str, started: float, finished: float) -> Span:
    return Span(worker, started, finished, cpu=finished - started)


def test_tasks_without_gaps_are_fully_efficient() -> None:
    result = efficiency([span("a", 0, 1), span("a", 1, 2), span("b", 0, 2)])

    assert result == (1.0, 1.0)


def test_gaps_between_tasks_count() -> None:
    assert efficiency([span("a", 0, 1), span("a", 3, 4)]).each == pytest.approx(0.5)


def test_a_process_that_starts_late_counts_only_together() -> None:
    result = efficiency([span("a", 0, 4), span("b", 2, 4)])

    assert result.each == pytest.approx(1.0)
    assert result.together == pytest.approx(0.75)


# -- goals


@pytest.mark.parametrize(
    ("goal", "values", "expected"),
    [
        ("bare", (0.4, 0.5, 0.6), "reached"),
        ("bare", (0.4, 0.49, 0.6), "NOT reached"),
        ("start-up", (2.0, 3.0, 9.0), "reached"),
        ("start-up", (2.0, 3.1, 9.0), "NOT reached"),
        ("memory idle", (60.0, 69.0), "reached"),
        ("memory idle", (60.0, 60.0, 71.0), "NOT reached"),  # every process has to
    ],
)
def test_a_goal_is_judged(goal: str, values: tuple[float, ...], expected: str) -> None:
    found = {verdict.goal: verdict.text for verdict in verdicts([figure(*values, goal=goal)])}

    assert found[GOALS[goal]] == expected


def test_a_goal_nobody_measured_says_so() -> None:
    assert {verdict.text for verdict in verdicts([figure(1.0)])} == {"not measured"}


def test_goals_read_as_the_design_writes_them() -> None:
    assert GOALS["bare"].text == "≥ 0.5 (then 0.8) \N{MULTIPLICATION SIGN}"
    assert GOALS["simple"].text == "≥ 1,000 \N{MULTIPLICATION SIGN}"
    assert GOALS["10 ms"].text == "≥ 0.97"
    assert GOALS["memory idle"].text == "≤ 70 MB"


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
def test_numbers_have_three_digits_or_so(value: float, expected: str) -> None:
    assert number(value) == expected


def test_a_row_shows_median_and_spread() -> None:
    assert figures_sheet([figure(3.0, 1.0, 2.0)]).rows[0][3:] == ("2.00", "tasks/s", "1.00 … 3.00 (3)")
    assert figures_sheet([figure(3.0)]).rows[0][-1] == "one value"


def test_every_goal_has_a_row() -> None:
    rows = goals_sheet([figure(0.7, goal="bare")]).rows

    assert len(rows) == len(GOALS)
    assert rows[0][-1] == "reached"


def test_markdown_tables_are_rectangular() -> None:
    lines = markdown(figures_sheet([figure(1.0), figure(2.0)])).splitlines()

    assert lines[0] == "## Everything measured"
    assert {line.count("|") for line in lines[2:]} == {7}


def test_the_terminal_shows_the_same_rows() -> None:
    assert terminal(goals_sheet([])).row_count == len(GOALS)


REPORT = Report(
    [figure(0.7, goal="bare")],
    [Trouble("latency", RuntimeError("it broke"))],
    {"machine": "a big one", "command": "scripts/bench"},
)


def test_the_document_has_the_facts_the_tables_and_the_method() -> None:
    text = document(REPORT)

    for part in (
        "- machine: a big one",
        "Not measured: latency: RuntimeError: it broke",
        "## Numbers to reach",
        "## How it is measured",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("error", "failed"),
    [
        (EndedError("not available yet", 2), False),
        (EndedError("crash loop", 5), True),
        (RuntimeError("it broke"), True),
    ],
)
def test_a_setting_that_the_worker_refuses_is_no_failure_of_the_suite(error: Exception, failed: bool) -> None:
    assert Trouble("exactly-once", error).failed is failed


def test_json_keeps_every_value() -> None:
    result = as_json(REPORT)

    assert result["figures"][0]["values"] == (0.7,)
    assert result["goals"][0]["verdict"] == "reached"
    assert result["facts"]["machine"] == "a big one"
