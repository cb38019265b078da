"""From DataFrame to DataFrame, without input or output: what the jobs compute."""
