"""The state topic: the records of long tasks, their fold, and the reader of a replica."""
