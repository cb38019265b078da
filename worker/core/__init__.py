"""The decisions, as pure functions and small state machines: time is passed in, nothing here does I/O."""
