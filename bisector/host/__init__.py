"""The host: processes, sandboxes, locks, files, packages, load; no other room imports ``subprocess``."""
