"""From empty disks to a mounted storage stack: the layers, stacks of them, and how a stack is laid out."""
