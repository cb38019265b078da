"""CPUs and memory kills, read from simulated control groups."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from worker.supervisor import cgroup
from worker.supervisor.cgroup import oom_kills
from worker.supervisor.cpus import available_cpus

if TYPE_CHECKING:
    from pathlib import Path


class Machine:
    """``/proc/self/cgroup`` and ``/sys/fs/cgroup`` in a folder of the test."""

    def __init__(self, folder: Path) -> None:
        self.membership = folder / "membership"
        self.root = folder / "cgroup"
        self.root.mkdir()

    def member(self, *lines: str) -> None:
        self.membership.write_text("\n".join(lines) + "\n")

    def file(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")

    def cpus(self) -> int:
        return available_cpus(self.membership, self.root)

    def oom_kills(self) -> int:
        return oom_kills(self.membership, self.root)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a machine on which this process may run on 8 CPUs."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)))
    return Machine(tmp_path)


def test_without_control_groups_the_affinity_counts(machine: Machine) -> None:
    assert machine.cpus() == 8


@pytest.mark.parametrize(
    ("quota", "cpus"),
    [("max 100000", 8), ("400000 100000", 4), ("150000 100000", 2), ("5000 100000", 1), ("9900000 100000", 8)],
)
def test_the_quota_of_version_2_is_rounded_up(machine: Machine, quota: str, cpus: int) -> None:
    machine.member("0::/")
    machine.file("cpu.max", quota)
    assert machine.cpus() == cpus


def test_the_lowest_quota_of_the_group_and_its_parents_counts(machine: Machine) -> None:
    machine.member("0::/pods/pod/container")
    machine.file("pods/cpu.max", "600000 100000")
    machine.file("pods/pod/cpu.max", "200000 100000")
    machine.file("pods/pod/container/cpu.max", "max 100000")
    assert machine.cpus() == 2


def test_a_path_of_the_host_does_not_hide_the_containers_own_group(machine: Machine) -> None:
    """Inside a container ``/sys/fs/cgroup`` may begin at its group, while the path begins at the host's root."""
    machine.member("0::/../../system.slice/docker-4f2a.scope")
    machine.file("cpu.max", "300000 100000")
    machine.file("../cpu.max", "100000 100000")  # above the container's own group
    assert machine.cpus() == 3


@pytest.mark.parametrize(("quota", "cpus"), [("250000", 3), ("-1", 8)])
def test_the_quota_of_version_1_is_read_from_two_files(machine: Machine, quota: str, cpus: int) -> None:
    machine.member("4:memory:/docker/4f2a", "3:cpu,cpuacct:/docker/4f2a", "0::/")
    machine.file("cpu/docker/4f2a/cpu.cfs_quota_us", quota)
    machine.file("cpu/docker/4f2a/cpu.cfs_period_us", "100000")
    assert machine.cpus() == cpus


def test_affinity_below_the_quota_wins(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {3})
    machine.member("0::/")
    machine.file("cpu.max", "400000 100000")
    assert machine.cpus() == 1


def test_memory_kills_are_counted_in_either_version(machine: Machine) -> None:
    assert machine.oom_kills() == 0
    machine.member("2:memory:/docker/4f2a")
    machine.file("memory/docker/4f2a/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2")
    assert machine.oom_kills() == 2
    machine.member("0::/pod")
    machine.file("pod/memory.events", "low 0\nhigh 0\nmax 12\noom 3\noom_kill 3\noom_group_kill 0")
    machine.file("memory.events", "oom_kill 40")
    assert machine.oom_kills() == 3


def test_only_a_recent_memory_kill_explains_the_end_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """One kill explains one end."""
    count = 5
    monkeypatch.setattr(cgroup, "oom_kills", lambda: count)
    kills = cgroup.OomKills()
    assert not kills.take(0.0)
    count = 6
    kills.look(10.0)
    kills.look(10.0 + cgroup.RECENT_SECONDS - 1)
    assert kills.take(10.0 + cgroup.RECENT_SECONDS - 1)
    assert not kills.take(10.0 + cgroup.RECENT_SECONDS - 1)
    count = 7
    kills.look(100.0)
    assert not kills.take(100.0 + cgroup.RECENT_SECONDS)


def test_this_machine_has_a_cpu() -> None:
    assert 1 <= available_cpus() <= (os.cpu_count() or 1)
