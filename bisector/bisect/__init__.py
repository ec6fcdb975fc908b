"""A bisection from request to answer: the session, the loop and the two strategies."""
