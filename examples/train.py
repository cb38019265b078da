"""Trains and cross-validates the scikit-learn model that a request names, on the library's bundled data sets.

The payload is JSON: ``{"dataset": "digits", "model": "svc", "params": {"C": 10}, "folds": 5, "seed": 0}``, the last
three optional. The result is JSON as well: the configuration, the mean and the standard deviation of the score over
the folds (accuracy, or R² for diabetes) and the seconds spent fitting.

``WORKER_HANDLER=examples.train:train worker run`` from the root of the repository.
"""

from __future__ import annotations

import functools
import json
import statistics
import time
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

from sklearn import datasets, ensemble, linear_model, naive_bayes, neighbors, neural_network, svm, tree
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

import worker

if TYPE_CHECKING:
    from worker.codec import Request
    from worker.handlers.context import Context

DATASETS = ("iris", "wine", "breast_cancer", "digits", "diabetes")
REGRESSION = frozenset({"diabetes"})
# By name: the classifier, and the regressor of the same kind.
MODELS: dict[str, tuple[Any, Any]] = {
    "boosting": (ensemble.GradientBoostingClassifier, ensemble.GradientBoostingRegressor),
    "extra_trees": (ensemble.ExtraTreesClassifier, ensemble.ExtraTreesRegressor),
    "forest": (ensemble.RandomForestClassifier, ensemble.RandomForestRegressor),
    "knn": (neighbors.KNeighborsClassifier, neighbors.KNeighborsRegressor),
    "linear": (linear_model.LogisticRegression, linear_model.Ridge),
    "mlp": (neural_network.MLPClassifier, neural_network.MLPRegressor),
    "naive_bayes": (naive_bayes.GaussianNB, None),
    "svc": (svm.SVC, svm.SVR),
    "tree": (tree.DecisionTreeClassifier, tree.DecisionTreeRegressor),
}


class Configuration(NamedTuple):
    """The configuration in a request, checked as far as possible without fitting."""

    dataset: str
    model: str
    params: dict[str, Any]
    folds: int
    seed: int


def train(request: Request, context: Context) -> str:
    """Return the scores. An impossible configuration is rejected; cancellation is checked between folds."""
    configuration = parse(request.payload)
    # One process, one CPU: a library that starts threads would take them from the other processes.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            scores, seconds = cross_validate(configuration, context)
        except (ValueError, TypeError) as error:  # what scikit-learn raises for bad parameters
            raise worker.Reject(f"impossible configuration: {first_line(error)}") from error
    result = configuration._asdict() | {
        "score_mean": round(statistics.fmean(scores), 6),
        "score_std": round(statistics.pstdev(scores), 6),
        "fit_seconds": round(seconds, 6),
    }
    return json.dumps(result, separators=(",", ":"))


def parse(payload: str) -> Configuration:
    """Return the configuration in a payload. Raise ``Reject`` with the reason if it is invalid."""
    try:
        requested = json.loads(payload)
        configuration = Configuration(**{"params": {}, "folds": 5, "seed": 0} | requested)
    except (ValueError, TypeError) as error:
        raise worker.Reject(f"not a configuration: {first_line(error)}") from error
    if configuration.dataset not in DATASETS:
        raise worker.Reject(f"unknown dataset {configuration.dataset!r}: there are {', '.join(DATASETS)}")
    if configuration.model not in list(MODELS):  # a list also accepts unhashable values
        raise worker.Reject(f"unknown model {configuration.model!r}: there are {', '.join(MODELS)}")
    return configuration


def cross_validate(configuration: Configuration, context: Context) -> tuple[list[float], float]:
    """Return the score of each fold, and the total seconds spent fitting."""
    data, target = load(configuration.dataset)
    split = KFold if configuration.dataset in REGRESSION else StratifiedKFold
    folds = split(configuration.folds, shuffle=True, random_state=configuration.seed)
    scores: list[float] = []
    seconds = 0.0
    for fitted_on, scored_on in folds.split(data, target):
        if context.cancelled.is_set():
            raise RuntimeError(f"stopped after {len(scores)} folds: {context.cancelled.reason}")
        model = make_pipeline(StandardScaler(), build(configuration))
        started = time.perf_counter()
        model.fit(data[fitted_on], target[fitted_on])
        seconds += time.perf_counter() - started
        scores.append(float(model.score(data[scored_on], target[scored_on])))
    return scores, seconds


def build(configuration: Configuration) -> Any:
    """Return the untrained model. Raise TypeError for a parameter that it does not have."""
    kind = MODELS[configuration.model][configuration.dataset in REGRESSION]
    if kind is None:
        raise ValueError(f"{configuration.model} cannot be trained on {configuration.dataset}")
    model = kind(**configuration.params)
    if "random_state" in model.get_params():
        model.set_params(random_state=configuration.seed)
    return model


@functools.cache
def load(dataset: str) -> tuple[Any, Any]:
    """Return features and target, read from the installed package."""
    data, target = getattr(datasets, f"load_{dataset}")(return_X_y=True)
    return data, target


def first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
