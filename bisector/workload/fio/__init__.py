"""fio: its command line, its output in every form, its logs, and how a run of it is stopped."""
