"""The checks of ``worker doctor`` for child processes and the container's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from worker.cli.checks import Verdict
from worker.cli.isolation_checks import memory
from worker.supervisor import cgroup

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20


@pytest.mark.parametrize(
    ("limit", "children", "task_memory", "together", "verdict", "said"),
    [
        (1024, 2, 0, False, Verdict.OK, "the container has 1024 MiB; tasks have no limit"),
        (1024, 2, 0, True, Verdict.WARN, "set WORKER_TASK_MEMORY"),
        (1024, 2, 452, True, Verdict.OK, "1024 MiB are enough for 2 tasks"),
        (1023, 2, 452, False, Verdict.WARN, "2 tasks of WORKER_TASK_MEMORY may use 1024 MiB"),
        (1024, 4, 300, False, Verdict.WARN, "4 tasks of WORKER_TASK_MEMORY may use 1320 MiB"),
    ],
)
def test_doctor_compares_the_memory_of_the_tasks_with_the_containers_limit(
    limit: int, children: int, task_memory: int, verdict: Verdict, said: str, *, together: bool
) -> None:
    check = memory(limit * MIB, 2, children, task_memory * MIB, kills_together=together)
    assert check.verdict is verdict
    assert said in check.text


def in_group(folder: Path, **files: str) -> tuple[Path, Path]:
    """Return the membership file, and the root with one group below it that has these files."""
    (folder / "memory" / "box").mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / "memory" / "box" / name.replace("__", ".")).write_text(text)
    membership = folder / "membership"
    membership.write_text("3:memory:/box\n")
    return membership, folder


def test_the_memory_limit_of_cgroup_version_1_is_read(tmp_path: Path) -> None:
    """The group above has no limit, which the kernel shows as a very large number."""
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert cgroup.memory_limit(*in_group(tmp_path, memory__limit_in_bytes="1048576\n")) == 1048576


def test_the_lowest_memory_limit_of_cgroup_version_2_counts(tmp_path: Path) -> None:
    """The limits of the groups above count too. ``memory.oom.group`` says that the kernel kills a group as a whole."""
    (tmp_path / "pod" / "box").mkdir(parents=True)
    (tmp_path / "pod" / "memory.max").write_text("5000\n")
    (tmp_path / "pod" / "box" / "memory.max").write_text("max\n")
    membership = tmp_path / "membership"
    membership.write_text("0::/pod/box\n")
    assert cgroup.memory_limit(membership, tmp_path) == 5000
    assert not cgroup.kills_together(membership, tmp_path)
    (tmp_path / "pod" / "box" / "memory.oom.group").write_text("1\n")
    assert cgroup.kills_together(membership, tmp_path)
