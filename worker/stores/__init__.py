"""Databases that store results and offsets together: ``WORKER_OFFSET_STORE``."""
