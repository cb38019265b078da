"""Databases that hold results and offsets together: ``WORKER_OFFSET_STORE``."""
