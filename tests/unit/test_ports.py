"""No two tests are given the same port."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tests.ports import free_port

if TYPE_CHECKING:
    import pytest


def test_no_port_is_given_twice() -> None:
    with ThreadPoolExecutor(8) as pool:
        ports = list(pool.map(lambda _: free_port(), range(400)))
    assert len(set(ports)) == 400


def test_parallel_test_processes_use_separate_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "2")
    found = {}
    for number in (0, 1):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", f"gw{number}")
        found[number] = {free_port() % 2 for _ in range(50)}
    assert found == {0: {0}, 1: {1}}
