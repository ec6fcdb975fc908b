"""Two empty disks to a mounted storage stack."""
