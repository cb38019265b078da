"""Hypothesis as these tests use it."""

from tests import hypothesis_profiles

hypothesis_profiles.load()
