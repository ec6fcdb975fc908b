"""Workloads, which run on the stack: fio jobs, other commands, their output and their figures."""
