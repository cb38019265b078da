"""The commands of ``worker``."""
