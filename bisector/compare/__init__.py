"""Comparisons of kernels on setups, in blocks: the request and plan, the schedule of trials, and the session."""
