"""The example handlers, and the table the demo runs."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from pyarrow import parquet

import worker
from examples import make_configurations
from examples.hello import greet
from examples.train import train
from worker.codec import Request
from worker.handlers.context import Cancelled


def context() -> Any:
    return SimpleNamespace(cancelled=Cancelled(), log=SimpleNamespace(info=lambda *_, **__: None))


def requested(**configuration: object) -> Request:
    return Request(payload=json.dumps(configuration))


def test_hello_greets() -> None:
    """The payload is who is greeted."""
    assert greet(Request(payload="Ada"), context(), greeting="Good day") == "Good day, Ada!"


def test_hello_rejects_nobody() -> None:
    """An empty payload can never succeed."""
    with pytest.raises(worker.Reject, match="nobody to greet"):
        greet(Request(), context())


@pytest.mark.parametrize("dataset", ["iris", "diabetes"])
def test_training_scores_a_model(dataset: str) -> None:
    """Classification and regression both end in a score over the folds, the same for the same seed."""
    request = requested(dataset=dataset, model="tree", params={"max_depth": 2}, folds=3, seed=7)

    first, second = (json.loads(train(request, context())) for _ in range(2))

    assert first["score_mean"] == second["score_mean"]
    assert (0.9 if dataset == "iris" else 0.2) < first["score_mean"] < 1
    assert {name: first[name] for name in ("dataset", "model", "params", "folds", "seed")} == {
        "dataset": dataset,
        "model": "tree",
        "params": {"max_depth": 2},
        "folds": 3,
        "seed": 7,
    }
    assert first["fit_seconds"] > 0


@pytest.mark.parametrize("payload", make_configurations.IMPOSSIBLE)
def test_impossible_configurations_are_rejected(payload: dict[str, Any]) -> None:
    """They go to the dead letters at once, instead of being tried again."""
    with pytest.raises(worker.Reject):
        train(requested(**payload), context())


@pytest.mark.parametrize(
    "payload",
    [
        "",
        "{",
        "[]",
        "5",
        "{}",
        '{"dataset": "iris"}',
        '{"dataset": "iris", "model": "knn", "color": "red"}',
        '{"dataset": "iris", "model": ["knn"]}',
        '{"dataset": "iris", "model": "knn", "params": 5}',
        '{"dataset": "iris", "model": "knn", "folds": 1}',
        '{"dataset": "iris", "model": "knn", "folds": "many"}',
        '{"dataset": "iris", "model": "forest", "seed": -1}',
    ],
)
def test_payloads_that_are_no_configuration_are_rejected(payload: str) -> None:
    """Whatever is written there, it is never a crash of the handler."""
    with pytest.raises(worker.Reject):
        train(Request(payload=payload), context())


def test_training_stops_between_folds() -> None:
    """A cancelled task gives its CPU back instead of finishing."""
    cancelled = context()
    cancelled.cancelled.set("drain")

    with pytest.raises(RuntimeError, match="stopped after 0 folds: drain"):
        train(requested(dataset="iris", model="knn"), cancelled)


def test_the_table_is_what_its_script_writes() -> None:
    """The committed file and the script that makes it say the same; the impossible ones are in it, each once."""
    rows = parquet.read_table(make_configurations.TABLE).to_pylist()

    payloads = [row["configuration"] for row in rows]
    assert [json.loads(payload) for payload in payloads] == make_configurations.configurations()
    assert [row["id"] for row in rows] == [f"model-{number:03d}" for number in range(1, len(rows) + 1)]
    assert len(set(payloads)) == len(payloads)
    assert {json.dumps(payload) for payload in make_configurations.IMPOSSIBLE} < set(payloads)
