"""Spark jobs that turn a table into requests and the answers into a table, and prove that none is missing."""
