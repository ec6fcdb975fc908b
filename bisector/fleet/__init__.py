"""The machines that measure for one person: who they are, and why they trust each other."""
