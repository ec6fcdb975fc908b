"""Searches in made-up worlds: how often the answer is right, and what it costs."""
