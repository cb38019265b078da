"""The long form of the tests, which ``E2E_LONG=1`` selects: more faults and rows, and tests that take minutes."""

from __future__ import annotations

import os

import pytest

LONG = os.environ.get("E2E_LONG") == "1"
long_only = pytest.mark.skipif(not LONG, reason="takes minutes; E2E_LONG=1 runs it")
