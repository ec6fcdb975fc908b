"""Which commit next: the repository and its bisect state."""
