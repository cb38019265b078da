"""Execution of a plan's faults, each at its time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, NamedTuple

from chaos import network_broker_faults, process_faults
from chaos.process_faults import NoTargetError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from chaos.plan import Fault
    from chaos.process_faults import RunContext

EVERYWHERE = ("broker", "store")  # areas whose faults hit all replicas
ACTIONS: dict[str, Callable[[RunContext, Fault], Awaitable[None]]] = {
    function.__name__.replace("_", "-"): function
    for function in (*network_broker_faults.FUNCTIONS, *process_faults.FUNCTIONS)
}


class FaultRecord(NamedTuple):
    """A fault that was injected into a replica ("": all). ``begin`` and ``end`` are monotonic seconds."""

    fault: Fault
    replica: str
    begin: float
    end: float


class Scheduler:
    """A scheduler of faults. ``injected`` are the faults that are over, ``skipped`` those that found no target."""

    def __init__(self, context: RunContext, echo: Callable[[str], None]) -> None:
        self.injected: list[FaultRecord] = []
        self.skipped: list[Fault] = []
        self._context = context
        self._echo = echo

    async def run(self, faults: Sequence[Fault], begin: float) -> None:
        """Inject all faults. Return when the last one is over."""
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                await asyncio.sleep(max(0.0, begin + fault.at - time.monotonic()))
                group.create_task(self._inject(fault))

    async def _inject(self, fault: Fault) -> None:
        # One broker fault at a time, with all copies in sync, even if that delays the plan. The same for stores.
        locks = {"broker": self._context.broker_lock, "store": self._context.store_lock}
        async with locks.get(fault.kind.area, contextlib.nullcontext()):
            begin = time.monotonic()
            try:
                await ACTIONS[fault.kind.name](self._context, fault)
            except NoTargetError:
                self.skipped.append(fault)
                return
            if fault.kind.area == "broker":
                await self._context.cluster.wait_answers()
                await self._context.cluster.wait_in_sync(self._context.topics)
        number = fault.replica % self._context.replicas.options.replicas
        replica = "" if fault.kind.area in EVERYWHERE else f"r{number}"
        self.injected.append(FaultRecord(fault, replica, begin, time.monotonic()))
        self._echo(f"{fault}: over")
