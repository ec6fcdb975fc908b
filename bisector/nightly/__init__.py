"""Nights without anyone watching: which tips are measured, what follows from a change, and their history."""
