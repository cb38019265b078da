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


def test_hello_greets_the_name_in_the_payload() -> None:
    """The keyword argument is the greeting."""
    assert greet(Request(payload="Ada"), context(), greeting="Good day") == "Good day, Ada!"


def test_hello_rejects_an_empty_payload() -> None:
    """A request without a name can never succeed."""
    with pytest.raises(worker.Reject, match="nobody to greet"):
        greet(Request(), context())


@pytest.mark.parametrize("dataset", ["iris", "diabetes"])
def test_training_scores_a_model(dataset: str) -> None:
    """Classification and regression both return a mean score over the folds. The same seed gives the same score."""
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
    """These requests become dead letters without another attempt."""
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
def test_a_payload_that_is_not_a_configuration_is_rejected(payload: str) -> None:
    """The handler raises ``Reject`` and no other exception."""
    with pytest.raises(worker.Reject):
        train(Request(payload=payload), context())


def test_cancelled_training_stops_before_the_next_fold() -> None:
    """A cancelled task frees its CPU instead of computing the remaining folds."""
    cancelled = context()
    cancelled.cancelled.set("drain")

    with pytest.raises(RuntimeError, match="stopped after 0 folds: drain"):
        train(requested(dataset="iris", model="knn"), cancelled)


def test_the_committed_table_has_the_configurations_of_its_script() -> None:
    """Each configuration is in the file once, in the order of the script. The impossible ones are among them."""
    rows = parquet.read_table(make_configurations.TABLE).to_pylist()

    payloads = [row["configuration"] for row in rows]
    assert [json.loads(payload) for payload in payloads] == make_configurations.configurations()
    assert [row["id"] for row in rows] == [f"model-{number:03d}" for number in range(1, len(rows) + 1)]
    assert len(set(payloads)) == len(payloads)
    assert {json.dumps(payload) for payload in make_configurations.IMPOSSIBLE} < set(payloads)
