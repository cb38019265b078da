"""A process that runs a task, and a rival that can take its partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tests.process_fake.stand_ins import Work
    from tests.process_fake.world import Process, Rival, World

CANCEL_GRACE = 5.0  # seconds, the default of the configuration


class Scene(NamedTuple):
    """A process that owns both partitions and runs a task of partition 0, and a rival that owns nothing yet."""

    world: World
    process: Process
    rival: Rival

    def move_away(self, number: int = 0) -> None:
        """Wait until the rival has the partition."""
        self.world.until(lambda: number in self.rival.owned)

    def offsets_of_rival(self, number: int = 0) -> list[int]:
        return [record.offset for record in self.rival.records if record.partition.number == number]


def scene(world: World, work: Work, *, hold: float = 1_000.0, others: Work | None = None, **options: Any) -> Scene:
    """Start a process that runs the first of three tasks of partition 0. ``others``: three tasks of partition 1."""
    for _ in range(3):
        world.request("task", 0, work=work)
    process = world.process(hold=hold, started=True, **options)
    world.until(lambda: process.owned == [0, 1])
    for number in (0, 1):
        world.move(number, process)
    rival = world.rival()
    world.until(lambda: process.starts)
    if others is not None:
        for _ in range(3):
            world.request("other", 1, work=others)
    return Scene(world, process, rival)
