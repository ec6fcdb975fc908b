"""The host: processes, sandboxes, locks, files, packages, load; no other room starts a process by itself."""
