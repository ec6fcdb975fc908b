"""Empty disks to a mounted storage stack: layers, what is composed of them, and how it is laid out."""
