"""The Hypothesis profile of these tests."""

from tests import hypothesis_profiles

hypothesis_profiles.load()
