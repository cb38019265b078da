"""Helpers for users' own tests."""
