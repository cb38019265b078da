"""The parent process: spawn, watch, restart and stop the worker processes."""
