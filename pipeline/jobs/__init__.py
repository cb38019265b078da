"""The jobs: one module for each command. Each takes a session and settings, and returns a result."""
