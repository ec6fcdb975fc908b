"""Facts on disk: SQLite, artifacts, run directories, the index of runs."""
