"""Any command as a workload, and the figures that it prints."""
