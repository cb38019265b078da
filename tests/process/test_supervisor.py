"""The supervisor with real processes and real signals, without Kafka."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
import urllib.request
from typing import TYPE_CHECKING

import pytest

from tests.process.observe import alive, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.process.observe import Replica

    Start = Callable[..., Replica]

SOON = 1.0  # seconds: a limit in tests of the time after it
LATER = 4.0  # seconds: a limit of the watchdog that a healthy process keeps even on a busy machine


def test_a_killed_process_is_replaced_within_two_seconds(replica: Start) -> None:
    """The replacement takes tasks by then. The peer processes are not restarted.

    The fastest of three counts, because other programs use this machine too.
    """
    one = replica("idle", "idle", "idle")
    seconds = []
    for count, pid in enumerate(one.wait_running(3), start=1):
        killed_at = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        one.wait_running(3 + count)
        seconds.append(time.monotonic() - killed_at)
    assert min(seconds) < 2
    assert [event["ending"] for event in one.events("process.ended")] == ["SIGKILL"] * 3


def test_no_process_outlives_a_killed_supervisor(replica: Start) -> None:
    one = replica("busy", "stubborn", "hanging")
    one.wait_running(2)
    pids = [event["pid"] for event in one.events("process.started")]
    one.process.kill()
    until(lambda: not any(alive(pid) for pid in pids), seconds=2)
    assert len(pids) == 3


@pytest.mark.parametrize("behaviour", ["parental", "parental_and_spinning"])
def test_subprocesses_of_a_handler_do_not_outlive_a_killed_supervisor(replica: Start, behaviour: str) -> None:
    """No supervisor is left to kill the process group, and the handler may hold the interpreter lock."""
    one = replica(behaviour)
    until((one.folder / "grandchildren").exists)
    pids = json.loads((one.folder / "grandchildren").read_text())
    assert len(pids) == 2
    assert all(map(alive, pids))
    one.process.kill()
    until(lambda: not any(map(alive, pids)), seconds=2)


def test_a_process_that_has_just_been_started_does_not_outlive_its_supervisor(replica: Start) -> None:
    """The process has not attached its lifeline yet."""
    one = replica("importing")
    (started,) = one.wait_for("process.started")
    one.process.kill()
    until(lambda: not alive(started["pid"]), seconds=2)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_stop_signal_drains_the_replica(replica: Start, number: signal.Signals) -> None:
    one = replica("idle", "idle")
    pids = one.wait_running(2)
    one.send(number)
    assert one.exit_code() == 0
    assert not any(alive(pid) for pid in pids)


def test_a_drain_waits_for_tasks_and_a_second_signal_cancels_them(replica: Start) -> None:
    one = replica("busy", "idle")
    one.wait_running(2)
    one.send(signal.SIGTERM)
    one.wait_for("process.ended")  # the idle one
    one.send(signal.SIGHUP)  # does not count as a second signal: a terminal that closes sends several
    one.wait_for("supervisor.signal", 2)
    assert one.process.poll() is None
    assert not one.events("supervisor.cancelling")
    one.send(signal.SIGTERM)
    assert one.exit_code() == 6


def test_sighup_beside_sigterm_cancels_nothing(replica: Start) -> None:
    """systemd can send both at once, and the lower number comes first."""
    one = replica("busy")
    one.wait_running(1)
    one.send(signal.SIGHUP)
    one.wait_for("supervisor.signal", 1)
    one.send(signal.SIGTERM)
    one.wait_for("supervisor.signal", 2)
    time.sleep(1)
    assert not one.events("supervisor.cancelling")
    one.send(signal.SIGTERM)
    assert one.exit_code() == 6


def test_subprocesses_of_a_handler_do_not_outlive_a_supervisor_that_fails(replica: Start) -> None:
    one = replica("parental", failing_after=2)
    until((one.folder / "grandchildren").exists)
    pids = json.loads((one.folder / "grandchildren").read_text())
    assert one.exit_code() == 1
    until(lambda: not any(map(alive, pids)), seconds=2)
    (failed,) = one.events("supervisor.failed")
    assert "RuntimeError: scripted" in failed["exception"]


def test_a_terminal_shows_the_running_request_and_how_to_cancel_it(replica: Start) -> None:
    one = replica("busy", interactive=True)
    one.wait_running()
    one.send(signal.SIGINT)
    until(lambda: "press Ctrl-C again" in one.stderr)
    one.send(signal.SIGINT)
    assert one.exit_code() == 6
    said = [line for line in one.stderr.splitlines() if line.startswith("worker: ")]
    assert said[0].startswith("worker: waiting for requests/1/75 (img-0269, ")
    assert said[0].endswith("); press Ctrl-C again to cancel it")
    assert said[1].startswith("worker: cancelling requests/1/75")
    assert one.events("supervisor.draining")[0]["running"] == ["requests/1/75"]


def test_the_end_of_a_process_names_the_request_it_ran(replica: Start) -> None:
    one = replica("busy")
    (pid,) = one.wait_running()
    os.kill(pid, signal.SIGKILL)
    (ended,) = one.wait_for("process.ended")
    request = {name: ended[name] for name in ("topic", "partition", "offset", "key", "sequence", "attempt")}
    assert request == {
        "topic": "requests",
        "partition": 1,
        "offset": 75,
        "key": "img-0269",
        "sequence": 269,
        "attempt": 2,
    }


def test_a_drain_that_takes_too_long_is_cancelled(replica: Start) -> None:
    one = replica("busy", drain_timeout=SOON)
    one.wait_running()
    one.send(signal.SIGTERM)
    assert one.exit_code() == 6
    assert not one.events("process.killed")


def test_a_process_that_does_not_react_to_a_cancel_is_killed(replica: Start) -> None:
    one = replica("stubborn", leave_grace=SOON)
    (pid,) = one.wait_running()
    one.send(signal.SIGTERM)
    one.wait_for("supervisor.draining")  # the kernel keeps one signal of a kind for a process, not two
    one.send(signal.SIGTERM)
    assert one.exit_code() == 6
    assert [event["pid"] for event in one.events("process.killed")] == [pid]


def test_a_process_that_dies_while_draining_is_not_replaced(replica: Start) -> None:
    one = replica("crashing_in_drain")
    one.wait_running()
    one.send(signal.SIGTERM)
    assert one.exit_code() == 0
    assert len(one.events("process.started")) == 1


def test_the_last_process_is_removed_from_the_group_if_it_dies_while_draining(
    replica: Start,
) -> None:
    """Otherwise its partitions would wait for the session time-out. The last line names the unfinished request."""
    one = replica("aborting_in_drain", leaver="stand_in:leave")
    one.wait_running()
    one.send(signal.SIGTERM)
    assert one.exit_code() == 6
    assert (one.folder / "left").read_text() == "consumer member-1"
    (line,) = [line for line in one.stderr.splitlines() if line.startswith("worker: ")]
    assert line.startswith("worker: a process ended during the drain (SIGABRT) and did not finish requests/1/75: ")


def test_a_replica_ends_although_the_coordinator_does_not_reply(replica: Start) -> None:
    one = replica("aborting_in_drain", leaver="stand_in:leave_never", leaver_limit=SOON)
    one.wait_running()
    one.send(signal.SIGTERM)
    assert one.exit_code() == 6


def test_a_signal_before_the_processes_run_stops_the_replica(replica: Start) -> None:
    one = replica(*["idle"] * 8)
    one.send(signal.SIGTERM)
    assert one.exit_code() == 0


@pytest.mark.parametrize("signals", [1, 2])
def test_a_drain_does_not_wait_for_a_process_that_is_still_starting(replica: Start, signals: int) -> None:
    """The import of a handler may take any time, and no task is lost if its process is killed."""
    one = replica("importing", leave_grace=SOON)
    one.wait_for("process.started")
    for count in range(signals):
        one.send(signal.SIGTERM)
        one.wait_for("supervisor.signal", count + 1)
    assert one.exit_code() == 0


def test_a_handler_that_cannot_be_loaded_stops_the_replica_with_one_line(replica: Start) -> None:
    one = replica("unloadable", "unloadable", "unloadable")
    assert one.exit_code() == 3
    assert [line for line in one.stderr.splitlines() if "nowhere" in line] == ["worker: no module named nowhere"]


def test_a_handler_that_ends_the_process_when_it_is_loaded_stops_the_replica(replica: Start) -> None:
    one = replica("exiting", "importing")
    assert one.exit_code() == 3
    (line,) = [line for line in one.stderr.splitlines() if line.startswith("worker: ")]
    assert line == "worker: WORKER_HANDLER=exiting: loading it ended the process with exit code 9"


def test_a_process_that_ends_after_it_has_loaded_its_handler_is_replaced(replica: Start) -> None:
    one = replica("exiting_later", "idle")
    one.wait_for("process.started", 3)
    (ended,) = one.events("process.ended")
    assert ended["ending"] == "exit_9"


def test_processes_that_keep_crashing_stop_the_replica(replica: Start) -> None:
    one = replica("crashing", "idle")
    assert one.exit_code() == 5
    assert len(one.events("process.ended")) == 6  # five of the first slot, then the drained peer
    (line,) = [line for line in one.stderr.splitlines() if line.startswith("worker: ")]
    assert line.startswith(
        "worker: processes keep crashing: 5 in a row ended soon after their start, the last by exit_9"
    )


@pytest.mark.parametrize(("behaviour", "limits"), [("hanging", (60, SOON)), ("importing", (SOON, 60))])
def test_a_stuck_process_shows_its_stacks_and_is_replaced(
    replica: Start, behaviour: str, limits: tuple[float, float]
) -> None:
    """A process is stuck if its loop does not turn, or has not started, and the process uses no CPU."""
    one = replica(behaviour, limits=limits)
    one.wait_for("process.started", 2)
    assert [event["ending"] for event in one.events("process.ended")] == ["stuck"]
    if behaviour == "hanging":  # the other one shows no stacks
        assert "Fatal Python error: Aborted" in one.stderr


def test_a_stopped_process_that_handles_no_signal_is_killed(replica: Start) -> None:
    one = replica("idle", "idle", limits=(60, LATER))
    first, _ = one.wait_running(2)
    os.kill(first, signal.SIGSTOP)
    one.wait_running(3)
    assert not alive(first)
    assert [event["pid"] for event in one.events("process.killed")] == [first]


def test_a_process_whose_loop_does_not_turn_but_uses_cpu_is_not_replaced(replica: Start) -> None:
    one = replica("spinning", limits=(60, LATER))
    slow = one.wait_for("process.slow")[0]
    assert (slow["partition"], slow["offset"], slow["key"]) == (1, 75, "img-0269")
    assert not one.events("process.stuck")
    assert len(one.events("process.started")) == 1


def test_a_task_that_holds_the_interpreter_lock_from_its_start_is_reported(replica: Start) -> None:
    """The main loop cannot report the task, but the executor has recorded it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    one = replica("seized", limits=(60, LATER), port=port)
    slow = one.wait_for("process.slow")[0]
    assert (slow["partition"], slow["offset"], slow["key"], slow["attempt"]) == (1, 75, "img-0269", 2)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/tasks", timeout=5) as answer:
        (process,) = json.load(answer)["processes"]
    assert (process["task"]["offset"], process["task"]["seconds"] > 1) == (75, True)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        assert b'worker_busy{slot="0"} 1.0' in answer.read()


def test_other_processes_learn_which_request_crashed_a_process(replica: Start) -> None:
    """The replacement learns it too, because any process may get the partitions."""
    one = replica("seized", "informed")
    seized = one.wait_for("process.started", 2)[0]["pid"]
    until((one.folder / "joined").exists)
    time.sleep(1.0)  # the executor writes its start right after the first turn
    os.kill(seized, signal.SIGKILL)
    (ended,) = one.wait_for("process.ended")
    assert (ended["offset"], ended["key"]) == (75, "img-0269")
    until(lambda: "75" in (one.folder / "crashes").read_text())
    (report,) = json.loads((one.folder / "crashes").read_text())
    assert report == ["a0000001", "requests", 1, 75, 2]


def test_a_process_that_waits_for_a_busy_subprocess_is_not_replaced(replica: Start) -> None:
    """A handler may do its work in a converter or a renderer while the poll loop is blocked in a client call."""
    one = replica("waiting", limits=(60, LATER))
    one.wait_for("process.slow")
    assert not one.events("process.stuck")


def test_orphans_that_a_supervisor_inherits_are_reaped(replica: Start) -> None:
    one = replica("idle", orphans=True)
    orphans = one.wait_for("orphan.reaped", 2)
    assert sorted(event["status"] for event in orphans) == [0, 7]
    one.wait_running()
    one.send(signal.SIGTERM)
    assert one.exit_code() == 0


def test_subprocesses_of_a_handler_die_with_its_process(replica: Start) -> None:
    one = replica("parental")
    (pid,) = one.wait_running()
    pids = json.loads((one.folder / "grandchildren").read_text())
    assert all(map(alive, pids))
    os.kill(pid, signal.SIGKILL)
    until(lambda: not any(map(alive, pids)))


def test_a_process_starts_without_blocked_signals_and_without_its_parents_modules(replica: Start) -> None:
    """The main script of the replica imports the modules of the command line. The child must not."""
    one = replica("reporting")
    one.wait_running()
    found = json.loads((one.folder / "environment").read_text())
    unwanted = {"replica", "rich", "click", "pydantic", "pydantic_settings", "prometheus_client", "pathos", "psutil"}
    assert unwanted.isdisjoint(found["modules"])
    assert [name for name in found["modules"] if name.startswith(("worker.cli", "worker.supervisor.s"))] == []
    assert found["blocked"] == []


def test_counters_continue_from_the_values_of_a_killed_process(replica: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    one = replica("idle", port=port)
    (pid,) = one.wait_running()
    until(lambda: polls(port) >= 50)
    before = polls(port)
    os.kill(pid, signal.SIGKILL)
    seen = [before]
    while seen[-1] <= before + 10:  # more than the dead process can have counted since
        seen.append(polls(port))
    assert seen == sorted(seen)
    assert len(one.running()) == 2


def polls(port: int) -> float:
    """Return one counter of the first slot from ``/metrics``."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        lines = [
            line for line in answer.read().decode().splitlines() if line.startswith('worker_polls_total{slot="0"}')
        ]
    return float(lines[0].split()[1]) if lines else 0.0


def test_a_process_that_cannot_be_started_is_started_again_later(replica: Start) -> None:
    """Memory or process numbers may be short for a moment."""
    one = replica("idle", refused=2)
    one.wait_running(1)
    assert len(one.events("process.unstartable")) == 2
    one.send(signal.SIGTERM)
    assert one.exit_code() == 0


def test_a_store_lost_by_one_process_does_not_end_the_replica(replica: Start) -> None:
    """The process is started again later. The peer process keeps running."""
    one = replica("unreachable", "idle")
    (restart,) = one.wait_for("process.restarting")
    assert restart["after"] >= 15
    assert not one.events("supervisor.draining")


def test_a_task_that_ends_its_process_does_not_end_the_replica(replica: Start) -> None:
    """The exit code does not matter: only from the process itself does 3 mean that the handler cannot be loaded."""
    one = replica("ending_its_process", "idle")
    one.wait_for("process.restarting")
    assert not one.events("supervisor.draining")


def test_the_last_line_of_a_crash_loop_has_the_reason(replica: Start) -> None:
    one = replica("failing")
    assert one.exit_code() == 5
    assert "the last by client_fatal: not authorized" in one.stderr
