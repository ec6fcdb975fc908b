"""Checks of this machine before a run spends its first hour."""
