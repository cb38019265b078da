"""The requests of a run: their actions, durations, keys and times. Drawn from the seed before the run."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any, NamedTuple

from chaos.features import CANCELLED_SHARE, FEATURES
from chaos.messages import job_key, json_request, request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.options import Options

PARTITIONS = 8
MOST_PARTITIONS = 16  # after some were added
KEYS = 40
LARGEST = 3_000_000  # bytes that the request topic accepts: more than a default client fetches at a time
LIFETIME = 3.0  # seconds until the deadline of a request that would otherwise hang

# With the feature pipeline, every request belongs to a job: to that of the table, which the pipeline submits, or to the
# job of all others. An audit counts answers to requests of no job as unexpected.
TABLE_JOB, OTHER_JOB = "table", "others"

LONG = (2.0, 7.0)  # seconds of a long task, longer than WORKER_LONG_AFTER
TIMEOUT = 1.0  # seconds that an attempt may take in a request that overruns

RATES = {"mixed": 8.0, "short": 250.0, "soak": 28.5}  # requests per second
_ODD = {"mixed": 0.04, "short": 0.002, "soak": 0.002}  # share of requests that are not plain work
# 80 % of the requests take 1 to 20 ms, 19 % take 0.2 to 1 s, and 1 % take 2 to 5 s. In a soak they are 96.9 %, 3 % and
# 0.1 %, so that two replicas can do 28 per second.
_LENGTHS = {
    "mixed": ((0.8, 0.001, 0.02), (0.99, 0.2, 1.0), (1.0, 2.0, 5.0)),
    "soak": ((0.969, 0.001, 0.02), (0.999, 0.2, 1.0), (1.0, 2.0, 10.0)),
}
# In a soak, tasks of features are rarer, and tasks with checkpoints take up to a minute.
_SOAK_SHARE = 0.02
_SOAK_STEPS = (10, 61)  # of a second each
_ODD_ALONE = 0.12  # the same in a mix that injects no faults


class Item(NamedTuple):
    """A request, to be sent ``at`` seconds after the start. ``value`` may be invalid as a ``Request``."""

    sequence: int
    at: float
    kind: str
    key: bytes
    value: bytes | None
    lifetime: float = 0.0  # seconds until its deadline; 0: none
    timeout: float = 0.0  # seconds that an attempt may take; 0: no limit
    cancel_after: float | None = None  # seconds after ``at`` when its cancellation is requested


# The possible outcomes of each kind. "segfault" kills its process twice, then succeeds; "always-segfault" never does.
NORMAL = frozenset(
    {
        *("sleep", "spin", "hold-gil", "large", "huge", "retry", "exhaust-memory", "segfault"),
        *("long", "steps", "follow-up", "overrun", "overuse", "echo"),
    }
)
DEAD_LETTERED = frozenset(
    {"garbage", "truncated", "empty", "null", "reject", "raise", "exit", "large-result", "always-segfault"}
)
EXPIRING = frozenset({"hang"})
MALFORMED = frozenset({"garbage", "truncated", "empty", "null"})
CRASHING = frozenset({"segfault", "always-segfault"})
FAILING = frozenset({"retry", "exhaust-memory", "overrun", "overuse"})  # their first attempts fail
_HARMLESS = (
    *("garbage", "truncated", "empty", "null", "reject", "raise", "exit", "large-result"),
    *("hang", "hold-gil", "large", "huge", "retry"),
)
_WITH_FAULTS = (*_HARMLESS, "exhaust-memory", "segfault")
_ALONE = (*_HARMLESS, "exhaust-memory", "always-segfault")


def draw(options: Options, seconds: float) -> list[Item]:
    """Return the requests of ``seconds`` seconds."""
    rng = random.Random(f"{options.seed}/load")
    alone = options.mix == "requests"
    odd = _ODD_ALONE if alone else _ODD[options.load]
    kinds: Sequence[str] = _ALONE if alone else _WITH_FAULTS
    if options.mix == "clean":
        kinds = _HARMLESS
    items: list[Item] = []
    at = 0.0
    while at < seconds:
        kind = rng.choice(kinds) if rng.random() < odd else rng.choice(("sleep", "sleep", "sleep", "spin"))
        items.append(_item(rng, options, len(items), at, kind))
        at += rng.expovariate(RATES[options.load])
    return _featured(options, items)


def _featured(options: Options, items: Sequence[Item]) -> list[Item]:
    """Replace some of the plain requests by those of the run's features, and choose which ones to cancel.

    It has a separate generator, so the features of a run do not change its other requests.
    """
    rng = random.Random(f"{options.seed}/features of the load")
    found = []
    for item in items:
        kind = _feature_kind(rng, options) if item.kind in ("sleep", "spin") else ""
        value = _encode(options, item.sequence, _feature_task(rng, options, item, kind)) if kind else item.value
        one = item._replace(kind=kind or item.kind, value=value, timeout=TIMEOUT if kind == "overrun" else 0.0)
        cancelled = "cancels" in options.uses and rng.random() < (0.5 if kind == "long" else CANCELLED_SHARE)
        found.append(one._replace(cancel_after=rng.uniform(0.0, 4.0)) if cancelled else one)
    return found


def _feature_task(rng: random.Random, options: Options, item: Item, kind: str) -> dict[str, Any]:
    task = _task(rng, kind, rng.uniform(*LONG))
    if kind == "echo":
        task |= {"seconds": round(rng.uniform(0.001, 0.05), 4), "token": token_of(item.sequence)}
    if kind == "steps" and options.load == "soak":
        task |= {"steps": rng.randrange(*_SOAK_STEPS), "seconds": 1.0}
    return task


def token_of(sequence: int) -> str:
    """Return the result that a request with the action ``echo`` must have."""
    return f"echo-{sequence}"


def _feature_kind(rng: random.Random, options: Options) -> str:
    """Return the kind of a request that uses a feature, or "" for a request that uses none."""
    roll = rng.random()
    for name in sorted(options.uses):
        feature = FEATURES[name]
        share = feature.share * (_SOAK_SHARE if options.load == "soak" else 1.0)
        if roll < share:
            return rng.choice(feature.kinds)
        roll -= share
    return ""


def _item(rng: random.Random, options: Options, number: int, at: float, kind: str) -> Item:
    shared = rng.randrange(KEYS) if options.ordering == "key" else None
    lifetime = LIFETIME if kind == "hang" else 0.0
    return Item(number, round(at, 4), kind, _key(options, number, shared), _value(rng, options, number, kind), lifetime)


def _key(options: Options, number: int, shared: int | None) -> bytes:
    """Return the key of a request: ``shared`` with others, or of this request alone."""
    if "pipeline" in options.uses:
        return job_key(OTHER_JOB, number if shared is None else shared)
    return f"r{number}".encode() if shared is None else f"k{shared}".encode()


def _value(rng: random.Random, options: Options, number: int, kind: str) -> bytes | None:
    seconds = round(rng.uniform(0, 0.002), 5) if options.load == "short" else _seconds(rng, _LENGTHS[options.load])
    if kind == "null":
        return None
    if kind == "empty":
        return b""
    if kind == "garbage":
        return b"\xff" + rng.randbytes(20)
    whole = _encode(options, number, _task(rng, kind, seconds))
    if kind == "truncated":  # half of a JSON text would be plain text instead of a malformed request
        return b"\xff" + whole if "json" in options.uses else whole[: len(whole) // 2]
    return whole


def _encode(options: Options, number: int, task: dict[str, Any]) -> bytes:
    return (json_request if "json" in options.uses else request)(number, json.dumps(task))


def _seconds(rng: random.Random, lengths: Sequence[tuple[float, float, float]]) -> float:
    """Draw a duration. The lengths are cumulated shares, each with its shortest and its longest duration."""
    draw = rng.random()
    _, low, high = next(one for one in lengths if draw < one[0])
    return round(rng.uniform(low, high), 4)


def _task(rng: random.Random, kind: str, seconds: float) -> dict[str, Any]:
    details: dict[str, dict[str, Any]] = {
        "sleep": {"seconds": seconds},
        "spin": {"seconds": min(seconds, 0.3)},  # the machine is small, and its cores are not under test
        "hold-gil": {"seconds": rng.choice([1, 2, 3])},
        "large": {"padding": "x" * rng.randrange(100_000, 900_000)} if kind == "large" else {},
        "huge": {"padding": "x" * rng.randrange(1_100_000, LARGEST - 100_000)} if kind == "huge" else {},
        "retry": {"until": rng.randrange(2, 4)},
        "exhaust-memory": {"until": 2},
        "segfault": {"until": rng.randrange(2, 4)},
        "large-result": {"size": 1_500_000},
        "long": {"seconds": round(seconds, 2)},
        "steps": {"steps": rng.randrange(4, 12), "seconds": 0.4} if kind == "steps" else {},
        "overrun": {"until": rng.randrange(2, 4)} if kind == "overrun" else {},
        "overuse": {"until": 2},
    }
    return {"do": kind, **details.get(kind, {})}


def expected(item: Item, guarantee: str, *, isolated: bool = False) -> frozenset[str]:
    """Return the outcomes that an answer to the request may have. An empty set means that it has no answer.

    If ``isolated``, a request that ends its process does not end the worker process, which answers the request.
    """
    once = guarantee == "at-most-once"
    if item.kind in DEAD_LETTERED:
        found = set() if once and item.kind in CRASHING and not isolated else {"DEAD_LETTERED"}
    elif item.kind in EXPIRING:
        found = {"EXPIRED"}
    elif once and item.kind in FAILING:
        found = {"DEAD_LETTERED"}
    elif once and item.kind in CRASHING:
        found = {"DEAD_LETTERED"} if isolated else set()
    else:
        found = {"OK"}
    return frozenset(found | {"CANCELLED"} if once else found)
