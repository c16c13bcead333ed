"""Effects: one folder for each outside system, thin, idempotent, each re-reading the world before it acts."""
