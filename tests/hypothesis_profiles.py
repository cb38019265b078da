"""Profiles of Hypothesis: a quick one for every run, and a thorough one with ``HYPOTHESIS_PROFILE=ci``."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Machines are slow at times, and a law does not depend on the time of an example.
_SLOW = [HealthCheck.too_slow]

# The same examples in every run of one version, so that a new failure comes from a change. The other one explores.
settings.register_profile(
    "quick",
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=_SLOW,
)
settings.register_profile("ci", max_examples=1_000, stateful_step_count=60, deadline=None, suppress_health_check=_SLOW)


def load() -> None:
    """Use the profile that the environment names, or else the quick one."""
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
