"""Writes ``configurations.parquet``: the table of model configurations the demo trains. The same rows every time.

``python examples/make_configurations.py`` after a change; the file is committed beside this one.
"""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import parquet

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLE = Path(__file__).with_name("configurations.parquet")
CLASSIFICATION = ("iris", "wine", "breast_cancer", "digits")
REGRESSION = ("diabetes",)
ALL = CLASSIFICATION + REGRESSION
SMALL = ("iris", "wine", "breast_cancer", "diabetes")

# Milliseconds to a second each: which data sets, which model, which values of its parameters (all combinations).
GRIDS: tuple[tuple[tuple[str, ...], str, dict[str, list[Any]]], ...] = (
    (ALL, "knn", {"n_neighbors": [1, 3, 5, 9, 15], "weights": ["uniform", "distance"]}),
    (CLASSIFICATION, "linear", {"C": [0.01, 0.1, 1.0, 10.0, 100.0], "max_iter": [2000]}),
    (REGRESSION, "linear", {"alpha": [0.01, 0.1, 1.0, 10.0, 100.0]}),
    (ALL, "svc", {"C": [0.1, 1.0, 10.0, 100.0], "gamma": ["scale", 0.01]}),
    (ALL, "tree", {"max_depth": [2, 4, 8, None], "min_samples_leaf": [1, 5]}),
    (CLASSIFICATION, "naive_bayes", {"var_smoothing": [1e-9, 1e-6, 1e-3]}),
    (ALL, "forest", {"n_estimators": [25, 100], "max_features": ["sqrt", 0.5]}),
    (ALL, "extra_trees", {"n_estimators": [25, 100]}),
    (SMALL, "boosting", {"n_estimators": [50, 100], "max_depth": [1, 3]}),
    (ALL, "mlp", {"hidden_layer_sizes": [[16], [32]], "alpha": [0.0001, 0.01], "max_iter": [300]}),
)
# Seconds to more than ten: ten classes make ten trees per step.
LONG = (
    {"dataset": "digits", "model": "boosting", "params": {"n_estimators": 50}},
    {"dataset": "digits", "model": "boosting", "params": {"n_estimators": 20, "max_features": "sqrt"}},
    {"dataset": "digits", "model": "boosting", "params": {"n_estimators": 20, "max_depth": 2}},
    {"dataset": "digits", "model": "mlp", "params": {"hidden_layer_sizes": [128], "max_iter": 300}},
)
# These can never be trained: the worker must turn exactly these into dead letters.
IMPOSSIBLE = (
    {"dataset": "digits", "model": "perceiver", "params": {}},
    {"dataset": "titanic", "model": "forest", "params": {}},
    {"dataset": "diabetes", "model": "naive_bayes", "params": {}},
    {"dataset": "iris", "model": "knn", "params": {"n_neighbors": 1000}},
    {"dataset": "wine", "model": "svc", "params": {"C": -1.0}},
    {"dataset": "iris", "model": "tree", "params": {"max_deph": 3}},
)


def grid() -> Iterator[dict[str, Any]]:
    """Yield every combination of every grid."""
    for names, model, values in GRIDS:
        for dataset, *chosen in itertools.product(names, *values.values()):
            yield {"dataset": dataset, "model": model, "params": dict(zip(values, chosen, strict=True))}


def configurations() -> list[dict[str, Any]]:
    """Return the whole table, shuffled, so that short, long and impossible rows are mixed."""
    table = [*grid(), *LONG, *IMPOSSIBLE]
    random.Random(0).shuffle(table)
    return table


def main() -> None:
    table = configurations()
    columns = {
        "id": [f"model-{number:03d}" for number in range(1, len(table) + 1)],
        "configuration": [json.dumps(configuration) for configuration in table],
    }
    parquet.write_table(pa.table(columns), TABLE, compression="zstd")
    print(f"{len(table)} configurations in {TABLE}")


if __name__ == "__main__":
    main()
