"""What each command does, from parsed arguments to an exit code; each module's ``add`` registers its commands."""
