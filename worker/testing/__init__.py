"""Tools for users' tests: run a handler without Kafka, or worker processes on an in-memory Kafka."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from worker.testing.attempts import Result, run_batch, run_handler
    from worker.testing.cluster import Answer, Cluster
    from worker.testing.process import WorkerProcess

__all__ = ["Answer", "Cluster", "Result", "WorkerProcess", "run_batch", "run_handler"]

_MODULES = {"Answer": "cluster", "Cluster": "cluster", "WorkerProcess": "process"}


def __getattr__(name: str) -> Any:
    """Import on use, because pytest loads the plugin in every project and the Kafka client takes long to import."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - see above

    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'attempts')}"), name)
