"""A bisection from what was asked to its answer: the loop, and what it derives from the record."""
