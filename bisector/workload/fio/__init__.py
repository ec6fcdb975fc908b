"""fio: its job files and command line, all forms of its output, its logs, and how a run is stopped early."""
