"""Figures to verdict."""
