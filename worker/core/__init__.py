"""Decisions as pure functions and small state machines. They get the time as an argument and do no I/O."""
