"""From figures to verdicts."""
