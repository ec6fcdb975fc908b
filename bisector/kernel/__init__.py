"""Source to bootable image: configuration, build, quirks, cache."""
