"""The supervisor, which starts, watches, restarts and stops the worker processes."""
