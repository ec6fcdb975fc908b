"""Simulated searches: how often the answer is right, and what it costs."""
