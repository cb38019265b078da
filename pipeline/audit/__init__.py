"""The audit: what was requested, what was answered, and whether the evidence is complete."""
