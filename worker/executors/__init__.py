"""The executor that runs handlers on a thread of the worker process, and the interface of all executors."""
