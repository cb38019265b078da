"""The benchmarks' statistics, and the environments of peers and other commits."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from benchmarks import __main__ as suite
from benchmarks import environments, handlers, sockets
from benchmarks.figures import (
    Figure,
    Sample,
    Span,
    efficiency,
    median_interval,
    quantile,
    ratios,
    steady,
    supported_quantile,
)
from benchmarks.other_engine import OtherEngine

if TYPE_CHECKING:
    from collections.abc import Sequence


def figure(*values: float, goal: str = "", quantity: str = "empty tasks") -> Figure:
    return Figure("throughput", quantity, "worker", "tasks/s", values, goal)


# -- numbers


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0.0, 1), (0.5, 50), (0.505, 51), (0.99, 99), (0.991, 100), (1.0, 100)],
)
def test_a_quantile_is_the_least_value_whose_rank_reaches_the_share(share: float, expected: float) -> None:
    assert quantile(list(range(100, 0, -1)), share) == expected


def test_a_quantile_of_few_values_is_one_of_them() -> None:
    assert quantile([7.0], 0.99) == 7.0
    assert quantile([1.0, 2.0, 3.0], 0.5) == 2.0


def test_a_quantile_of_no_values_is_an_error() -> None:
    with pytest.raises(ValueError, match="no values"):
        quantile([], 0.5)


def test_ratios_pair_values_up_to_the_shorter_length() -> None:
    assert ratios([2.0, 9.0, 5.0], [1.0, 3.0]) == (2.0, 3.0)


def test_a_figure_has_a_median_and_a_spread() -> None:
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


def test_the_steady_rate_interpolates_between_samples() -> None:
    assert steady([Sample(0.0, 0), Sample(10.0, 1000, cpu=1.0)], 1000).per_second == pytest.approx(100)


def test_the_steady_rate_accepts_more_answers_than_requested() -> None:
    assert steady([Sample(0.0, 0), Sample(10.0, 2000)], 1000).per_second == pytest.approx(200)


def test_the_steady_rate_covers_the_whole_run_if_all_answers_arrive_together() -> None:
    """Otherwise 1,000 answers that one commit settles would count as 1,000 in the 50 ms between two samples."""
    samples = [Sample(0.0, 0), Sample(3.95, 0), Sample(4.0, 1000, cpu=2.0)]
    middle = steady(samples, 1000)
    assert middle.per_second == pytest.approx(250)
    assert middle.cpu_per_answer == pytest.approx(0.002)


def test_a_run_that_stopped_early_has_no_steady_rate() -> None:
    with pytest.raises(ValueError, match="never were 900 answers"):
        steady([Sample(0.0, 0), Sample(1.0, 500)], 1000)


# -- how reliable a number is


@pytest.mark.parametrize(
    ("count", "share", "supported"),
    [(19, 0.5, False), (20, 0.5, True), (999, 0.99, False), (1000, 0.99, True), (9_999, 0.999, False)],
)
def test_a_quantile_needs_ten_values_beyond_it(count: int, share: float, *, supported: bool) -> None:
    assert (supported_quantile([float(n) for n in range(count)], share) is not None) is supported


@pytest.mark.parametrize(
    ("count", "interval"), [(5, None), (6, (1.0, 6.0)), (8, (1.0, 8.0)), (9, (2.0, 8.0)), (12, (3.0, 10.0)), (1, None)]
)
def test_the_interval_of_a_median_needs_six_values(count: int, interval: tuple[float, float] | None) -> None:
    """The ranks are those of tables of the sign test."""
    assert median_interval([float(n + 1) for n in range(count)]) == interval


# -- efficiency


def span(worker: str, started: float, finished: float) -> Span:
    return Span(worker, started, finished, cpu=finished - started)


def test_tasks_without_gaps_are_fully_efficient() -> None:
    result = efficiency([span("a", 0, 1), span("a", 1, 2), span("b", 0, 2)])

    assert result == (1.0, 1.0)


def test_gaps_between_tasks_reduce_the_efficiency() -> None:
    assert efficiency([span("a", 0, 1), span("a", 3, 4)]).each == pytest.approx(0.5)


def test_a_late_process_reduces_only_the_efficiency_of_all_processes_together() -> None:
    result = efficiency([span("a", 0, 4), span("b", 2, 4)])

    assert result.each == pytest.approx(1.0)
    assert result.together == pytest.approx(0.75)


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


# -- peers that are not available


def test_a_missing_environment_is_an_error_if_downloads_are_not_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "FOLDER", tmp_path)

    with pytest.raises(environments.MissingError, match="not fetched yet"):
        environments.Environments(fetch=False).python("celery")


def test_a_failed_download_reports_its_error_and_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Path] = []

    def fail(folder: Path, packages: Sequence[str]) -> None:
        tried.append(folder)
        environments._run(["/bin/sh", "-c", f"echo no network for {len(packages)} >&2; exit 3"])

    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    monkeypatch.setattr(environments, "_virtual", fail)
    made = environments.Environments(fetch=True)

    for _ in range(2):
        with pytest.raises(environments.MissingError, match="sh failed: no network for 2"):
            made.python("celery")
    assert tried == [tmp_path / "celery"]


def test_an_environment_is_built_again_only_when_its_packages_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    monkeypatch.setattr(environments, "_virtual", lambda _folder, packages: made.append(packages))

    environments.Environments(fetch=True).python("celery")
    environments.Environments(fetch=False).python("celery")
    monkeypatch.setitem(environments.PYTHON_PEERS, "celery", ("celery==1",))
    environments.Environments(fetch=True).python("celery")

    assert made == [("celery[redis]==5.7.0", environments.HIREDIS), ("celery==1",)]


# -- the worker of another commit


def test_the_worker_of_another_commit_runs_the_same_handlers() -> None:
    engine = OtherEngine.extract("HEAD")
    try:
        assert engine.name == f"worker at {engine.commit}"
        assert (engine.folder / "worker/__main__.py").is_file()
        ours = Path(handlers.__file__).read_text(encoding="utf-8")
        assert (engine.folder / "benchmarks/handlers.py").read_text(encoding="utf-8") == ours
        assert engine.settings == {"PYTHONPATH": str(engine.folder)}
    finally:
        engine.remove()
    assert not engine.folder.exists()


def test_a_commit_that_git_does_not_know_is_refused_before_anything_starts() -> None:
    result = CliRunner().invoke(suite.main, ["--headline", "--beside", "no-such-commit"])

    assert result.exit_code == 2
    assert "--beside no-such-commit" in result.output
