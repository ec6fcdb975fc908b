"""A bisection from what was asked to its answer: the session, the loop, the two strategies."""
