"""What each command does, from parsed arguments to an exit code; ``add`` of a module registers its commands."""
