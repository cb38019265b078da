"""The features of the worker that a run uses in addition to plain tasks: their settings and dependencies."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

DRAWN = "drawn"  # instead of names: each feature has a chance of one half


class Feature(NamedTuple):
    """A feature. ``kinds`` are the requests that use it, ``share`` is their share of all requests."""

    settings: Mapping[str, str]
    kinds: tuple[str, ...] = ()
    share: float = 0.0
    needs: str = ""  # another feature
    states: bool = False  # whether it needs the state topic
    private_brokers: bool = False  # whether it needs brokers that no other run can use


_LONG = {"WORKER_LONG_AFTER": "1s"}
FEATURES = {
    "cancels": Feature({}, ("long",), 0.02, states=True),
    "checkpoints": Feature({}, ("steps",), 0.03, states=True),
    "detaching": Feature(_LONG, ("long",), 0.03, states=True),
    "isolation": Feature({"WORKER_ISOLATION": "process"}),
    "limits": Feature(
        {"WORKER_TASK_MEMORY": "150MiB", "WORKER_CANCEL_GRACE": "1s"}, ("overrun", "overuse"), 0.02, "isolation"
    ),
    "extra-slots": Feature({**_LONG, "WORKER_EXTRA_SLOTS": "1"}, ("long",), 0.03, "isolation"),
    "follow-ups": Feature({}, ("follow-up",), 0.1),
    "json": Feature({"WORKER_FORMAT": "json"}),
    "retention": Feature({}),
    "partitions": Feature({}),
    "clocks": Feature({}),
    "client": Feature({}, ("echo",), 0.25),
    "secured": Feature({}, private_brokers=True),
    "upgrade": Feature({}, private_brokers=True),
    "pipeline": Feature({}),
}
CANCELLED_SHARE = 0.05  # of all requests, with the feature cancels
NOT_DRAWN = {"pipeline"}  # Spark needs a long run


def parse(names: str, seed: int, store: str = "") -> str:
    """Return the features of a run in a fixed order, joined by ``+``. ``drawn`` draws them. Raise ValueError."""
    if names == DRAWN:
        rng = random.Random(f"{seed}/features")
        common = [name for name in FEATURES if name not in NOT_DRAWN and not FEATURES[name].private_brokers]
        chosen = {name for name in common if rng.random() < 0.5}  # noqa: PLR2004 - a coin
    else:
        chosen = set(filter(None, names.split("+")))
    if unknown := chosen - FEATURES.keys():
        raise ValueError(f"no feature is called {', '.join(sorted(unknown))}: choose from {', '.join(FEATURES)}")
    if chosen and store:
        raise ValueError("runs with an offset store use no features")
    if chosen >= {"secured", "client"}:
        raise ValueError("the feature client cannot be used with secured: it does not learn of rotated passwords")
    if {"pipeline", "json"} <= chosen:
        raise ValueError("the pipeline supports only protobuf: choose pipeline or json")
    chosen |= {FEATURES[name].needs for name in chosen} - {""}
    return "+".join(name for name in FEATURES if name in chosen)


def settings(chosen: Collection[str]) -> dict[str, str]:
    """Return the worker's settings for these features, without the state topic."""
    return {name: value for one in chosen for name, value in FEATURES[one].settings.items()}


def need_private_brokers(chosen: Collection[str]) -> bool:
    """Return whether the run needs brokers that no other run can use."""
    return any(FEATURES[one].private_brokers for one in chosen)


def use_states(chosen: Collection[str]) -> bool:
    """Return whether the worker needs the state topic."""
    return any(FEATURES[one].states for one in chosen)
