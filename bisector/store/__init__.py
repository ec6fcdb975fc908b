"""Records on disk: logs of facts in SQLite, artifacts of trials, run directories, and the index of runs."""
