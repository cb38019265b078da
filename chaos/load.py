"""The requests of a run: what they do, how long, under which key, when. Drawn from the seed beforehand."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.kafka.support.messages import request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.plan import Options

PARTITIONS = 8
KEYS = 40
LARGEST = 3_000_000  # bytes that the request topic takes: more than a client fetches at a time, if it need not
LIFETIME = 3.0  # seconds that a request which would hang for ever is given
MANY = 25  # starts that a request has in a run where processes are killed from outside: innocent ones need some too
FEW = 3  # starts where only requests kill processes

RATES = {"mixed": 8.0, "short": 250.0}  # requests per second
_ODD = {"mixed": 0.04, "short": 0.002}
_ODD_ALONE = 0.12  # of the mix that has no other faults


class Item(NamedTuple):
    """A request to be sent ``at`` seconds after the beginning. ``value`` may be no ``Request`` at all."""

    sequence: int
    at: float
    kind: str
    key: bytes
    value: bytes | None
    lifetime: float = 0.0  # seconds until its deadline; 0: none


# What becomes of each kind. "crash" dies twice before it comes to something, "killer" always.
NORMAL = frozenset({"nap", "spin", "grip", "large", "huge", "again", "eat", "crash"})
BURIED = frozenset({"garbage", "truncated", "empty", "null", "reject", "raise", "quit", "big", "killer"})
EXPIRING = frozenset({"hang"})
MALFORMED = frozenset({"garbage", "truncated", "empty", "null"})
MORTAL = frozenset({"crash", "killer"})  # these end their process
FAILING = frozenset({"again", "eat"})  # first attempts raise
_OUTSIDE_KILLS = (
    *("garbage", "truncated", "empty", "null", "reject", "raise", "quit", "big"),
    *("hang", "grip", "large", "huge", "again"),
)
_WITH_KILLS = (*_OUTSIDE_KILLS, "eat", "crash")
_ALONE = (*_OUTSIDE_KILLS, "eat", "killer")


def most_attempts(options: Options) -> int:
    """``WORKER_MAX_ATTEMPTS`` of the run."""
    return FEW if options.mix == "requests" else MANY


def draw(options: Options, seconds: float) -> list[Item]:
    """The requests for so many seconds."""
    rng = random.Random(f"{options.seed}/load")
    alone = options.mix == "requests"
    odd = _ODD_ALONE if alone else _ODD[options.load]
    kinds: Sequence[str] = _ALONE if alone else _WITH_KILLS
    if options.mix == "gentle":
        kinds = _OUTSIDE_KILLS
    items: list[Item] = []
    at = 0.0
    while at < seconds:
        kind = rng.choice(kinds) if rng.random() < odd else rng.choice(("nap", "nap", "nap", "spin"))
        items.append(_item(rng, options, len(items), at, kind))
        at += rng.expovariate(RATES[options.load])
    return items


def _item(rng: random.Random, options: Options, number: int, at: float, kind: str) -> Item:
    key = f"k{rng.randrange(KEYS)}" if options.ordering == "key" else f"r{number}"
    lifetime = LIFETIME if kind == "hang" else 0.0
    return Item(number, round(at, 4), kind, key.encode(), _value(rng, options, number, kind), lifetime)


def _value(rng: random.Random, options: Options, number: int, kind: str) -> bytes | None:
    seconds = _seconds(rng) if options.load == "mixed" else round(rng.uniform(0, 0.002), 5)
    if kind == "null":
        return None
    if kind == "empty":
        return b""
    if kind == "garbage":
        return b"\xff" + rng.randbytes(20)
    whole = request(number, json.dumps(_task(rng, kind, seconds)))
    return whole[: len(whole) // 2] if kind == "truncated" else whole


def _seconds(rng: random.Random) -> float:
    """80 % 1 to 20 ms, 19 % 0.2 to 1 s, a few 2 to 5 s."""
    draw = rng.random()
    low, high = (0.001, 0.02) if draw < 0.8 else (0.2, 1.0) if draw < 0.99 else (2.0, 5.0)  # noqa: PLR2004 - as said
    return round(rng.uniform(low, high), 4)


def _task(rng: random.Random, kind: str, seconds: float) -> dict[str, Any]:
    details: dict[str, dict[str, Any]] = {
        "nap": {"seconds": seconds},
        "spin": {"seconds": min(seconds, 0.3)},  # the machine is small, and its cores are not what is tested
        "grip": {"seconds": rng.choice([1, 2, 3])},
        "large": {"padding": "x" * rng.randrange(100_000, 900_000)} if kind == "large" else {},
        "huge": {"padding": "x" * rng.randrange(1_100_000, LARGEST - 100_000)} if kind == "huge" else {},
        "again": {"until": rng.randrange(2, 4)},
        "eat": {"until": 2},
        "crash": {"until": rng.randrange(2, 4)},
        "big": {"size": 1_500_000},
    }
    return {"do": kind, **details.get(kind, {})}


def expected(item: Item, guarantee: str) -> frozenset[str]:
    """The outcomes that an answer to the request may have. Nothing: there cannot be one."""
    once = guarantee == "at-most-once"
    if item.kind in BURIED:
        found = set() if once and item.kind in MORTAL else {"DEAD_LETTERED"}
    elif item.kind in EXPIRING:
        found = {"EXPIRED"}
    elif once and item.kind in FAILING:
        found = {"DEAD_LETTERED"}
    elif once and item.kind in MORTAL:
        found = set()
    else:
        found = {"OK"}
    return frozenset(found | {"CANCELLED"} if once else found)
