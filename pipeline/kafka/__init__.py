"""Requests of the driver to the brokers, and how Spark reads and writes topics."""
