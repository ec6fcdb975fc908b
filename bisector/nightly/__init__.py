"""Nights that nobody watches: which tips are measured, what follows from a change, and their history."""
