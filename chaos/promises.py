"""What the project promises, which runs put it to the test, and the command that would refute it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from chaos.faults import KINDS
from chaos.record import has_feature

if TYPE_CHECKING:
    from collections.abc import Callable

    from chaos.record import Line


class Promise(NamedTuple):
    """A promise, what would refute it, and a command that exits with 1 if it finds that.

    ``tested_by`` tells of a run in the record whether it puts the promise to the test. If the command names a
    guarantee, only runs with that guarantee do. ``kinds`` are the faults that the promise is about; none means all.
    """

    text: str
    refuted_by: str
    command: str
    tested_by: Callable[[Line], bool]
    kinds: tuple[str, ...] = ()

    def is_tested_by(self, line: Line) -> bool:
        """Return whether a run in the record puts the promise to the test."""
        words = self.command.split()
        guarantee = words[words.index("--guarantee") + 1] if "--guarantee" in words else line["guarantee"]
        return line["guarantee"] == guarantee and self.tested_by(line)


def _guarantee(name: str) -> Callable[[Line], bool]:
    return lambda line: line["guarantee"] == name


def _mix(name: str) -> Callable[[Line], bool]:
    return lambda line: line["mix"] == name


def _feature(name: str) -> Callable[[Line], bool]:
    return lambda line: has_feature(line, name)


def _fault(*names: str) -> Callable[[Line], bool]:
    return lambda line: any(line.get("happened", {}).get(name) for name in names)


_FAULTS = "--faults 60 --gap 0.6"

PROMISES = (
    Promise(
        "exactly-once: every request has exactly one committed answer",
        "a second committed answer, or none",
        f"--guarantee exactly-once {_FAULTS}",
        _guarantee("exactly-once"),
    ),
    Promise(
        "at-least-once: every request has an answer, and a second one only after a fault",
        "a request without an answer, or a second answer that no fault explains",
        f"--guarantee at-least-once {_FAULTS}",
        _guarantee("at-least-once"),
    ),
    Promise(
        "at-most-once: no request starts twice",
        "a second start of a request in the handlers' journal",
        f"--guarantee at-most-once {_FAULTS}",
        _guarantee("at-most-once"),
    ),
    Promise(
        "deployments repeat nothing",
        "a second start under SIGTERM, restarts and scaling alone",
        "--mix clean --faults 40 --session 20",
        _mix("clean"),
        tuple(kind.name for kind in KINDS if kind.clean),
    ),
    Promise(
        "a request that always ends its process becomes a dead letter after its attempts",
        "two starts more than the limit, or another request that becomes a dead letter",
        "--mix requests --minutes 2",
        _mix("requests"),
    ),
    Promise(
        "a detached task is answered once, whoever has its partition",
        "a second committed answer, an overtaken request, or an offset that is never committed",
        "--guarantee exactly-once --with detaching --faults 40",
        _feature("detaching"),
    ),
    Promise(
        "a task resumes from its last confirmed checkpoint",
        "a start from an earlier checkpoint",
        "--with checkpoints --faults 40",
        _feature("checkpoints"),
    ),
    Promise(
        "a cancelled request is answered once: `CANCELLED`, or with its result if it ended before",
        "two answers, none, or a start long after it was cancelled",
        "--guarantee exactly-once --with cancels --faults 40",
        _feature("cancels"),
    ),
    Promise(
        "a crash in a child process affects no other request",
        "another request that starts again without a fault",
        "--mix requests --minutes 2 --with limits",
        lambda line: has_feature(line, "isolation") and line["mix"] == "requests",
    ),
    Promise(
        "a chain of requests is exactly-once from end to end",
        "a follow-up request that is missing, comes twice, or has no answered parent",
        "--guarantee exactly-once --with follow-ups --faults 40",
        _feature("follow-ups"),
    ),
    Promise(
        "a future of the client is the answer to its request",
        "a future that does not resolve, or to another result",
        "--with client --faults 40",
        _feature("client"),
    ),
    Promise(
        "added partitions are served",
        "a request in an added partition without an answer",
        "--with partitions --mix add-partitions+restart --faults 20",
        _feature("partitions"),
        ("add-partitions",),
    ),
    Promise(
        "a wrong wall clock loses nothing, and no request is answered twice",
        "a loss, or a second committed answer",
        "--guarantee exactly-once --with clocks --mix clock-forward+clock-back+restart --faults 20",
        _feature("clocks"),
        ("clock-forward", "clock-back"),
    ),
    Promise(
        "lost packets only slow the work down",
        "a loss, or a second committed answer",
        "--guarantee exactly-once --mix drop+loss --faults 24 --gap 1.5 --brokers 3",
        _fault("drop", "loss"),
        ("drop", "loss"),
    ),
    Promise(
        "a broker with a full disk stops nothing for good",
        "a request without an answer",
        "--mix broker-disk-full --faults 4 --gap 10 --brokers 3",
        _fault("broker-disk-full"),
        ("broker-disk-full",),
    ),
    Promise(
        "passwords can be rotated, and the permissions in the manual suffice",
        "a second start without another fault, or a request without an answer",
        "--with secured --mix rotate-credentials+scale --faults 6 --gap 8 --session 20",
        _feature("secured"),
        ("rotate-credentials",),
    ),
    Promise(
        "brokers can be upgraded while tasks run",
        "a loss, or a second committed answer",
        "--guarantee exactly-once --brokers 3 --with upgrade --faults 30",
        _feature("upgrade"),
        ("broker-upgrade",),
    ),
    Promise(
        "the pipeline submits each row once, collects each record once, and audits correctly",
        "a row or a record that is missing or there twice, or another verdict than the suite's",
        "--guarantee exactly-once --with pipeline --faults 20 --gap 8",
        _feature("pipeline"),
        ("kill-pipeline",),
    ),
    Promise(
        "retention may delete what is committed",
        "a loss, or a second start without another fault",
        "--with retention --mix delete-records+kill-process+restart+cut --faults 20",
        _fault("delete-records"),
        ("delete-records",),
    ),
    Promise(
        "exactly-once: an hour of mixed tasks breaks no invariant",
        "any violation",
        "--soak",
        lambda line: line["load"] == "soak" and line["minutes"] >= 60 and line["guarantee"] == "exactly-once",  # noqa: PLR2004 - an hour
    ),
)
