"""Which step is next, and what the answer is: by git's own midpoints, or by weighing all readings."""
