"""Results that others measured: an index and files become trials, and their verdicts are checked."""
