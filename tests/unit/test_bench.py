"""The pure parts of the benchmarks: numbers, goals, tables."""

from __future__ import annotations

import itertools
import json
import os
import socket
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks import durations, environments, plots, results, sockets
from benchmarks.contest import in_turns, versus
from benchmarks.figures import Figure, Sample, Span, efficiency, quantile, ratios, slow_rate, steady
from benchmarks.goals import GOALS, verdicts
from benchmarks.programs import EndedError
from benchmarks.report import (
    Piece,
    Report,
    Trouble,
    as_json,
    document,
    figures_sheet,
    goals_sheet,
    markdown,
    matrix,
    number,
    terminal,
    wins,
)
from benchmarks.workloads import pipeline

if TYPE_CHECKING:
    from collections.abc import Sequence


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


def test_where_all_comes_at_once_the_whole_run_counts() -> None:
    """Else 1,000 answers that one commit settles would be 1,000 in the 50 ms between two looks."""
    samples = [Sample(0.0, 0), Sample(3.95, 0), Sample(4.0, 1000, cpu=2.0)]
    middle = steady(samples, 1000)
    assert middle.per_second == pytest.approx(250)
    assert middle.cpu_per_answer == pytest.approx(0.002)


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


TROUBLE = Trouble("latency", "Celery", RuntimeError("it broke"))
FACTS = {"date": "today", "command": "scripts/bench"}
REPORT = Report(
    {"throughput": Piece([figure(0.7, goal="bare")], [], FACTS), "latency": Piece([], [str(TROUBLE)], FACTS)},
    {"machine": "a big one"},
)


def test_the_document_has_the_facts_the_tables_the_pictures_and_the_method() -> None:
    text = document(REPORT, {"benchmarks/ratios.svg": "How many times"})

    for part in (
        "- machine: a big one",
        "- latency: Celery: RuntimeError: it broke",
        "## Numbers to reach",
        "![How many times](benchmarks/ratios.svg)",
        "## How it is measured",
        "| throughput | today | scripts/bench |",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("program", "failed"), [("worker", True), ("exactly-once", True), ("", True), ("Celery", False), ("arroyo", False)]
)
def test_a_peer_that_fails_is_no_failure_of_the_suite(program: str, failed: bool) -> None:
    assert Trouble("peers", program, EndedError("it fell over", 1)).failed is failed


def test_json_keeps_every_value() -> None:
    result = as_json(REPORT)

    assert result["figures"][0]["values"] == (0.7,)
    assert result["goals"][0]["verdict"] == "reached"
    assert result["facts"]["machine"] == "a big one"


def test_programs_stand_beside_each_other_where_several_did_the_same() -> None:
    figures = [
        Figure("peers", "empty tasks", "worker", "tasks/s", (10.0,)),
        Figure("peers", "empty tasks", "Celery", "tasks/s", (2.0,)),
        Figure("peers", "alone", "worker", "tasks/s", (1.0,)),
        Figure("guarantees", "empty tasks", "at-most-once", "tasks/s", (9.0,)),
    ]

    assert matrix(figures)[1:] == (("what", "unit", "worker", "Celery"), [("empty tasks", "tasks/s", "10.0", "2.00")])


def test_a_peer_that_is_ahead_is_named_whatever_ahead_means() -> None:
    figures = [
        Figure("peers", "empty tasks", "worker", "tasks/s", (10.0,)),
        Figure("peers", "empty tasks", "bare loop", "tasks/s", (20.0,)),
        Figure("peers", "empty tasks", "arroyo", "tasks/s", (11.0,)),
        Figure("peers", "empty tasks", "Celery", "tasks/s", (9.0,)),
        Figure("start-up", "start", "worker", "s", (2.0,)),
        Figure("start-up", "start", "arroyo", "s", (3.0,)),
        Figure("start-up", "start", "Celery", "s", (1.0,)),
    ]

    assert [row[:5] for row in wins(figures).rows] == [
        ("empty tasks", "tasks/s", "arroyo", "11.0", "10.0"),
        ("start", "s", "Celery", "1.00", "2.00"),
    ]


# -- what is kept


def test_results_survive_being_kept(tmp_path: Path) -> None:
    results.save(REPORT, tmp_path / "new/results.json")

    assert results.load(tmp_path / "new/results.json") == REPORT


def test_nothing_kept_is_nothing() -> None:
    assert results.load(Path("/nowhere")) == Report({}, {})


def test_a_workload_measured_again_replaces_itself_alone() -> None:
    again = Piece([figure(0.9)], [], FACTS)

    merged = results.merged(REPORT, Report({"latency": again}, {"versions": "new"}), ["latency", "throughput"])

    assert merged.pieces == {"latency": again, "throughput": REPORT.pieces["throughput"]}
    assert merged.facts == {"machine": "a big one", "versions": "new"}


def test_a_workload_that_is_gone_goes() -> None:
    assert list(results.merged(REPORT, Report({}, {}), ["latency"]).pieces) == ["latency"]


# -- uneven tasks


def test_lengths_are_drawn_until_they_are_worth_the_time_and_always_the_same() -> None:
    lengths = durations.worth(durations.pareto(4), 40)

    assert sum(lengths) >= 40 > sum(lengths[:-1])
    assert min(lengths) >= durations.SHORTEST
    assert max(lengths) <= durations.LONGEST
    assert lengths == durations.worth(durations.pareto(4), 40)


def test_one_of_a_hundred_is_long() -> None:
    hundred = list(itertools.islice(durations.bimodal(1), 300))

    assert [hundred[at : at + 100].count(durations.LONG) for at in (0, 100, 200)] == [1, 1, 1]
    assert hundred.count(durations.SHORTEST) == 297


@pytest.mark.parametrize(
    ("lengths", "bound", "greedy"),
    [([1, 1, 1, 1], 2, 2), ([1, 1, 4], 4, 5), ([4, 1, 1], 4, 4), ([2, 2, 2], 3, 4), ([5], 5, 5)],
)
def test_no_schedule_beats_the_bound_and_greedy_takes_them_as_they_come(
    lengths: list[float], bound: float, greedy: float
) -> None:
    assert durations.lower_bound(lengths, 2) == bound
    assert durations.list_schedule(lengths, 2) == greedy


def test_frequent_keys_make_frequent_partitions() -> None:
    keys = durations.zipf_keys(10_000, 100, 1)
    partitions = [durations.dealt(keys, 4)(number)[1] for number in range(len(keys))]

    assert keys.count(0) > 5 * keys.count(9) > 0
    assert partitions.count(0) > 1.5 * partitions.count(3)
    assert durations.dealt([7], 4)(0) == (b"7", 3)


# -- contestants in turns


class Recorder:
    """Stands for the bench: what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.troubles: list[Trouble] = []

    def others(self) -> float:
        return 0.0

    def say(self, line: str) -> None:
        self.lines.append(line)

    def trouble(self, workload: str, program: str, error: Exception) -> None:
        self.troubles.append(Trouble(workload, program, error))


def test_programs_take_turns_and_one_that_fails_is_left_out() -> None:
    bench: Any = Recorder()
    order: list[str] = []

    def measure(contestant: Any) -> float:
        order.append(contestant.name)
        if contestant.name == "b" and order.count("b") == 2:
            raise RuntimeError("it broke")
        return float(len(order))

    programs: Any = [SimpleNamespace(name=name) for name in "abc"]
    found = in_turns(bench, "peers", programs, 3, measure)

    assert order == ["a", "b", "c", "a", "b", "c", "a", "c"]
    assert found == {"a": [1.0, 4.0, 7.0], "b": [2.0], "c": [3.0, 6.0, 8.0]}
    assert [str(trouble) for trouble in bench.troubles] == ["peers: b: RuntimeError: it broke"]


def test_ratios_put_the_worker_over_each_of_the_others() -> None:
    found = versus("peers", "empty tasks", {"worker": [6.0, 8.0], "Celery": [3.0, 2.0]}, {"Celery": "bare"})

    assert [(one.program, one.values, one.goal) for one in found] == [("worker ÷ Celery", (2.0, 4.0), "bare")]


def test_without_the_worker_there_are_no_ratios() -> None:
    assert versus("peers", "empty tasks", {"Celery": [3.0]}, {}) == []


# -- what the kernel counts


def test_bytes_received_are_those_of_the_process_from_that_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        accepted, _ = server.accept()
        with client, accepted:
            accepted.sendall(b"x" * 12_345)
            received = client.recv(12_345, socket.MSG_WAITALL)

            assert len(received) == sockets.received([os.getpid()], port) == 12_345
            assert sockets.received([os.getpid()], port + 1) == 0
            assert sockets.received([], port) == 0


# -- pictures


def test_pictures_are_drawn_of_what_there_is(tmp_path: Path) -> None:
    figures = [
        Figure("start-up", "to first task", "worker", "s", (1.0, 2.0)),
        Figure("start-up", "to first task", "Celery", "s", (3.0,)),
    ]

    assert plots.draw(figures, tmp_path) == {"startup.svg": "Process start → first task running (less is better)"}
    picture = (tmp_path / "startup.svg").read_text(encoding="utf-8")
    assert all(name in picture for name in ("worker", "Celery", "to first task"))


# -- peers that cannot be had


def test_what_is_not_there_is_missing_where_nothing_may_be_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "FOLDER", tmp_path)

    with pytest.raises(environments.MissingError, match="not fetched yet"):
        environments.Environments(fetch=False).python("celery")


def test_a_download_that_fails_says_why_and_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Path] = []

    def fail(folder: Path, packages: Sequence[str]) -> None:
        tried.append(folder)
        environments._run(["/bin/sh", "-c", f"echo no network for {len(packages)} >&2; exit 3"])

    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    monkeypatch.setattr(environments, "_virtual", fail)
    made = environments.Environments(fetch=True)

    for _ in range(2):
        with pytest.raises(environments.MissingError, match="sh failed: no network for 1"):
            made.python("celery")
    assert tried == [tmp_path / "celery"]


def test_an_environment_is_made_once_and_again_when_something_else_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    monkeypatch.setattr(environments, "_virtual", lambda _folder, packages: made.append(packages))

    environments.Environments(fetch=True).python("celery")
    environments.Environments(fetch=False).python("celery")
    monkeypatch.setitem(environments.PYTHON_PEERS, "celery", ("celery==1",))
    environments.Environments(fetch=True).python("celery")

    assert made == [("celery[redis]==5.7.0",), ("celery==1",)]


# -- the pipeline's own benchmarks


def test_the_pipelines_figures_come_under_the_names_of_this_suite() -> None:
    written = [Figure("spark-codec", "requests", "pipeline", "/s", (1.0, 2.0), "encode")]

    found = pipeline.figures("codec", json.dumps([asdict(figure) for figure in written]))

    assert found == [Figure("pipeline-codec", "requests", "pipeline", "/s", (1.0, 2.0), "encode")]
    assert {"encode", "decode", "submit", "submit, of the sink", "audit"} < GOALS.keys()
