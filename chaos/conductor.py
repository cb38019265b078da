"""Plays the faults of a plan, each at its time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, NamedTuple

from chaos.acts import NoTargetError
from chaos.mischief import ACTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chaos.acts import Scene
    from chaos.plan import Fault


class Played(NamedTuple):
    """A fault that happened, and when, by the monotonic clock."""

    fault: Fault
    begin: float
    end: float


class Conductor:
    """``played`` are the faults that are over, ``skipped`` those that found nothing to be done to."""

    def __init__(self, scene: Scene, say: Callable[[str], None]) -> None:
        self.played: list[Played] = []
        self.skipped: list[Fault] = []
        self._scene = scene
        self._say = say

    async def play(self, faults: Sequence[Fault], begin: float) -> None:
        """All of them; returns when the last is over."""
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                await asyncio.sleep(max(0.0, begin + fault.at - time.monotonic()))
                group.create_task(self._one(fault))

    async def _one(self, fault: Fault) -> None:
        # One broker at a time, with complete copies, also if that takes longer than planned; the same with a store.
        locks = {"broker": self._scene.brokers, "store": self._scene.stores}
        lock = locks.get(fault.kind.area, contextlib.nullcontext())
        async with lock:
            begin = time.monotonic()
            try:
                await ACTS[fault.kind.name](self._scene, fault)
            except NoTargetError:
                self.skipped.append(fault)
                return
            if fault.kind.area == "broker":
                await self._scene.cluster.wait_answers()
                await self._scene.cluster.wait_in_sync(self._scene.topics)
        self.played.append(Played(fault, begin, time.monotonic()))
        self._say(f"{fault}: over")
