"""Executors run trials, controls and builds, on this host or on others."""
