"""The command line: from options to settings, to a session, to a job and to its result as a line."""
