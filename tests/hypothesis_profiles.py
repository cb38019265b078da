"""How hard Hypothesis looks: quickly at every run, thoroughly with ``HYPOTHESIS_PROFILE=ci``."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Machines are slow at times: what a law says has nothing to do with how long one example takes.
_SLOW = [HealthCheck.too_slow]

# The same examples in every run of one version, so that a new failure is the change's. The other profile explores.
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
    """Use the profile that the environment names, else the quick one."""
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
