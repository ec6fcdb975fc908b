"""The demonstration: a git history with a known answer, and the real tool run on it."""
