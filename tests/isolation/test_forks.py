"""Processes that a handler starts and that outlive the thread or the shell that started them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.isolation.rig import names

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.isolation.rig import Rig

pytestmark = pytest.mark.timeout(60)


def test_a_process_outlives_the_helper_thread_that_forked_it(make: Callable[..., Rig]) -> None:
    rig = make(handler="forking:handle")
    (outcome,) = rig.run("fork_in_a_thread")
    assert outcome.result == b"7"


def test_processes_that_have_ended_do_not_pile_up(make: Callable[..., Rig]) -> None:
    rig = make(handler="forking:handle")
    outcomes = rig.run(*["orphan"] * 20)
    assert names(outcomes) == ["OK"] * 20
    time.sleep(0.5)
    rig.run("ok")
    time.sleep(0.3)
    assert len(rig.family) < 10, rig.family
