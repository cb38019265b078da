"""The tables of the lake: their schemas, their files, and how they are written."""
