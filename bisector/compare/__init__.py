"""Kernels compared on setups, in blocks: what is asked, what is measured next, and the process that does it."""
