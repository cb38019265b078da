"""Loads the user's function and runs it."""
