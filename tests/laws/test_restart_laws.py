"""Laws of restarts, of the startup barrier and of the liveness check, for any history."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from worker.core.liveness import LONGEST_STEP, WORKING_SHARE, Limits, LivenessCheck, Stuck
from worker.core.restart import (
    HEALTHY_SECONDS,
    SHORT_LIMIT,
    USELESS_LIMIT,
    Ending,
    Halt,
    History,
    Respawn,
    classify,
    decide,
)
from worker.core.startup_barrier import LONGEST_WAIT, PeerProcess, StartupBarrier
from worker.errors import ExitCode

GREATEST_DELAY = 30.0

# For each process of a slot: how it ended, how long it was in the group, and the jitter. Each had answered a request.
Lives = list[tuple[Ending, float | None, float]]

statuses = st.integers(min_value=-64, max_value=255)
# For the first three, the replica stops. For the last two, it waits for its store or for the kernel.
NO_CRASH = (
    ExitCode.SETTINGS_INVALID,
    ExitCode.HANDLER_UNLOADABLE,
    ExitCode.BROKER_UNREACHABLE,
    ExitCode.STORE_UNREACHABLE,
    ExitCode.UNSTARTABLE,
)
crashes = statuses.filter(lambda status: status not in NO_CRASH).map(classify)
jitters = st.floats(min_value=0, max_value=1)
short_runs = st.floats(min_value=0, max_value=HEALTHY_SECONDS, exclude_max=True)
healthy_runs = st.floats(min_value=HEALTHY_SECONDS, max_value=1e6)
runs = st.none() | short_runs | healthy_runs


def replay(lives: Lives) -> list[Respawn | Halt]:
    """Return the decisions about one slot, up to the halt if there is one."""
    history, decisions = History(), []
    for ending, joined_for, jitter in lives:
        decision = decide(ending, joined_for, history, explained=False, useful=True, jitter=jitter)
        decisions.append(decision)
        if isinstance(decision, Halt):
            break
        history = decision.history
    return decisions


@given(st.lists(st.tuples(statuses.map(classify), runs, jitters), max_size=60))
def test_a_restart_delay_is_never_zero_and_never_too_long(lives: Lives) -> None:
    for decision in replay(lives):
        if isinstance(decision, Respawn):
            assert 0.1 <= decision.after <= GREATEST_DELAY


@given(crashes, st.none() | short_runs, jitters)
def test_a_process_is_replaced_quickly_after_its_first_crash(
    ending: Ending, joined_for: float | None, jitter: float
) -> None:
    """A process killed once must be replaced within two seconds, start-up included."""
    (decision,) = replay([(ending, joined_for, jitter)])
    assert isinstance(decision, Respawn)
    assert decision.after <= 0.3


@given(st.lists(st.tuples(crashes, healthy_runs, jitters), max_size=200))
def test_a_slot_whose_processes_run_well_is_never_given_up(lives: Lives) -> None:
    """This applies however often its processes are killed."""
    decisions = replay(lives)
    assert all(isinstance(decision, Respawn) and decision.after <= 0.3 for decision in decisions)


@given(st.lists(st.tuples(crashes, short_runs, st.just(0.0)), max_size=SHORT_LIMIT - 1))
def test_delays_only_grow_until_a_run_is_healthy(lives: Lives) -> None:
    delays = [decision.after for decision in replay(lives) if isinstance(decision, Respawn)]
    assert delays == sorted(delays)


@given(st.lists(st.tuples(crashes, runs, jitters), max_size=60))
def test_a_slot_is_given_up_exactly_when_it_is_hopeless(lives: Lives) -> None:
    """That is after ``USELESS_LIMIT`` processes in a row that never joined, or ``SHORT_LIMIT`` with no healthy run."""
    decisions = replay(lives)
    useless = short = 0
    for (_, joined_for, _), decision in zip(lives, decisions, strict=False):
        useless = useless + 1 if joined_for is None else 0
        short = 1 if joined_for is not None and joined_for >= HEALTHY_SECONDS else short + 1
        hopeless = useless >= USELESS_LIMIT or short >= SHORT_LIMIT
        assert isinstance(decision, Halt) is hopeless
        assert not isinstance(decision, Halt) or decision.exit_code is ExitCode.CRASH_LOOP


@given(
    st.sampled_from([ExitCode.STORE_UNREACHABLE, ExitCode.UNSTARTABLE]),
    st.lists(jitters, max_size=200),
    st.builds(History, st.integers(0, 4), st.integers(0, 19)),
)
def test_an_outage_of_the_store_or_the_kernel_never_stops_a_replica(
    code: ExitCode, draws: list[float], history: History
) -> None:
    ending = classify(code)
    for jitter in draws:
        decision = decide(ending, None, history, explained=False, useful=False, jitter=jitter)
        assert isinstance(decision, Respawn)
        assert decision.history == history


peers = st.builds(PeerProcess, joined=st.booleans(), assigned=st.integers(0, 5)).map(
    lambda peer: peer if peer.joined else PeerProcess(joined=False, assigned=0)
)


@given(
    st.integers(1, 20),
    st.integers(2, 4).flatmap(
        lambda n: st.lists(
            st.tuples(st.lists(peers, min_size=n, max_size=n), st.floats(0.01, 3)), min_size=1, max_size=40
        )
    ),
)
def test_the_barrier_opens_once_in_time_and_not_before_all_processes_have_joined(
    partitions: int, looks: list[tuple[list[PeerProcess], float]]
) -> None:
    barrier, now, first_joined, was_open = StartupBarrier(partitions), 0.0, None, False
    for replica, step in looks:
        now += step
        is_open = barrier.update(replica, now)
        if first_joined is None and any(peer.joined for peer in replica):
            first_joined = now
        late = first_joined is not None and now - first_joined >= LONGEST_WAIT
        assert is_open or not (was_open or late)
        assert not is_open or was_open or late or all(peer.joined for peer in replica)
        was_open = is_open


steps = st.lists(st.floats(min_value=0.01, max_value=5.0), min_size=1, max_size=200)


@given(steps, st.floats(min_value=WORKING_SHARE * 1.01, max_value=4.0), st.integers(0, 3))
def test_a_process_that_uses_its_cpu_is_never_called_stuck(waits: list[float], share: float, turns: int) -> None:
    liveness, now = LivenessCheck(Limits(boot=10, turn=10)), 0.0
    for wait in waits:
        now += wait
        assert not isinstance(liveness.check(turns, now * share, now), Stuck)


@given(steps, st.integers(0, 3))
def test_an_idle_process_without_turns_is_called_stuck_after_the_limit(waits: list[float], turns: int) -> None:
    """Long waits between two checks count only in part, because the whole machine may have been frozen."""
    liveness, now, watched = LivenessCheck(Limits(boot=10, turn=10)), 0.0, 0.0
    liveness.check(turns, 0.0, now)
    for wait in waits:
        now += wait
        watched += min(wait, LONGEST_STEP)
        verdict = liveness.check(turns, 0.0, now)
        if isinstance(verdict, Stuck):
            assert watched > 9.999  # not exactly 10: the sums are rounded
            return
        assert watched < 10.001
