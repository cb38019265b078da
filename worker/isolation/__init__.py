"""Handlers in a child process: a template that has imported the handler, and the children that it forks."""
