"""Facts on disk: the SQLite store, the artifacts, the index of runs."""
